// For tests: a client of sockets.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace quern {

/// A plain socket: sends what no well-behaved client would.
class RawClient {
 public:
  explicit RawClient(int port, int receive_bytes = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  explicit RawClient(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(std::string_view text) {
    EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  /// Reads until the text holds `end`, or the server closes, or five seconds have passed.
  std::string read_until(std::string_view end) {
    while (text_.find(end) == std::string::npos && fill()) {
    }
    const size_t at = text_.find(end);
    const size_t length = at == std::string::npos ? text_.size() : at + end.size();
    std::string out = text_.substr(0, length);
    text_.erase(0, length);
    return out;
  }
  /// The first `size` bytes, or fewer when the server closes or five seconds have passed.
  std::string read(size_t size) {
    while (text_.size() < size && fill()) {
    }
    std::string out = text_.substr(0, size);
    text_.erase(0, out.size());
    return out;
  }
  std::string read_all() {
    while (fill()) {
    }
    return std::exchange(text_, {});
  }
  /// Closes as a process that is killed with unread data does: the server is told of an error.
  void reset() {
    const linger at_once{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

 private:
  bool fill() {
    pollfd wait{socket_, POLLIN, 0};
    if (poll(&wait, 1, 5000) != 1) return false;
    char buffer[4096];
    const ssize_t size = recv(socket_, buffer, sizeof buffer, 0);
    if (size > 0) text_.append(buffer, static_cast<size_t>(size));
    return size > 0;
  }

  int socket_;
  std::string text_;
};

}  // namespace quern
