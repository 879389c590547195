// Bytes on a connection: whatever a client sends, the server answers or closes, and the next client is served.
#include <arpa/inet.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "net/http_server.h"

namespace {

using quern::HttpRequest;
using quern::HttpServer;

HttpServer& server() {
  static const std::unique_ptr<HttpServer> instance = [] {
    quern::HttpServerOptions options;
    options.max_body_bytes = 1 << 16;
    auto started = HttpServer::start(options, [](HttpRequest request, std::shared_ptr<quern::Responder> responder) {
      responder->send({200, {}, request.method + " " + request.target + "\n" + request.body});
    });
    CHECK(started.ok());
    return std::move(started).value();
  }();
  return *instance;
}

/// Whether `connection` is connected in the end: the fuzzer's alarm may interrupt any call.
bool connects(int connection, const sockaddr_in& address) {
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  if (errno == EADDRNOTAVAIL) return false;
  CHECK(errno == EINTR);
  pollfd waiting{connection, POLLOUT, 0};
  while (::poll(&waiting, 1, -1) < 0) CHECK(errno == EINTR);
  int failure = 0;
  socklen_t size = sizeof failure;
  CHECK(::getsockopt(connection, SOL_SOCKET, SO_ERROR, &failure, &size) == 0);
  CHECK(failure == 0);
  return true;
}

/// The system keeps a closed connection's port for a minute, and thousands of connections a second would use up an
/// address's ports: every connection comes from the next address of the loopback network, from a port that is chosen
/// when the other side is known.
int connect_to_server() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server().port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  static uint32_t connections = 0;
  for (int tries = 0; tries < 100; ++tries) {
    const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connection >= 0);
    sockaddr_in source{};
    source.sin_family = AF_INET;
    source.sin_addr.s_addr = htonl(INADDR_LOOPBACK + ++connections % 0xff'fffe);
    const int on = 1;
    CHECK(::setsockopt(connection, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on) == 0);
    CHECK(::bind(connection, reinterpret_cast<const sockaddr*>(&source), sizeof source) == 0);
    if (connects(connection, address)) return connection;
    ::close(connection);
  }
  CHECK(false && "no port is free");
  return -1;
}

/// Sends the bytes and the end of them; what comes back until the server closes.
std::string talk(const uint8_t* bytes, size_t size) {
  const int connection = connect_to_server();
  for (size_t sent = 0; sent < size;) {
    const ssize_t now = ::send(connection, bytes + sent, size - sent, MSG_NOSIGNAL);
    if (now <= 0) break;
    sent += static_cast<size_t>(now);
  }
  ::shutdown(connection, SHUT_WR);
  std::string answer;
  char block[4096];
  for (ssize_t got = 0; (got = ::recv(connection, block, sizeof block, 0)) > 0;)
    answer.append(block, static_cast<size_t>(got));
  ::close(connection);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string answer = talk(bytes, size);
  CHECK(answer.empty() || answer.starts_with("HTTP/1.1 "));
  return 0;
}
