// Stream: a TCP socket, encrypted or not: what connections and clients read and write. Private to net. Thread: that of
// its event loop.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "net/tls.h"

namespace quern {

class Tls {
 public:
  explicit Tls(boost::asio::ssl::context::method method) : context(method) {}
  boost::asio::ssl::context context;
};

class Stream {
  static constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Failure = boost::system::error_code;
  using executor_type = Socket::executor_type;

  explicit Stream(Socket socket) : socket_(std::move(socket)) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Socket& socket() { return socket_; }
  executor_type get_executor() { return socket_.get_executor(); }
  bool encrypted() const { return tls_.has_value(); }

  /// The server's half of the handshake; from then on all is encrypted.
  boost::asio::awaitable<Failure> accept(const std::shared_ptr<Tls>& tls) {
    begin(tls);
    const auto [failure] = co_await tls_->async_handshake(boost::asio::ssl::stream_base::server, kTuple);
    co_return failure;
  }

  /// The client's half; the server must show a certificate of `host`.
  boost::asio::awaitable<Failure> connect(const std::shared_ptr<Tls>& tls, const std::string& host) {
    begin(tls);
    Failure failure;
    boost::asio::ip::make_address(host, failure);
    SSL* ssl = tls_->native_handle();
    if (failure) {
      SSL_set_tlsext_host_name(ssl, host.c_str());
      SSL_set1_host(ssl, host.c_str());
    } else {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str());
    }
    std::tie(failure) = co_await tls_->async_handshake(boost::asio::ssl::stream_base::client, kTuple);
    co_return failure;
  }

  /// What was found about the other side's certificate: one of OpenSSL's X509_V_...
  long verdict() { return tls_ ? SSL_get_verify_result(tls_->native_handle()) : X509_V_OK; }

  /// Tells the other side that nothing more is sent, which it may wait for.
  boost::asio::awaitable<void> finish() {
    if (tls_) co_await tls_->async_shutdown(kTuple);
    Failure ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }

  void close() {
    Failure ignored;
    socket_.close(ignored);
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(Failure, size_t)>(
        [this](auto handler, const Buffers& wanted) {
          if (tls_) {
            tls_->async_read_some(wanted, std::move(handler));
          } else {
            socket_.async_read_some(wanted, std::move(handler));
          }
        },
        token, buffers);
  }

  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(Failure, size_t)>(
        [this](auto handler, const Buffers& given) {
          if (tls_) {
            tls_->async_write_some(given, std::move(handler));
          } else {
            socket_.async_write_some(given, std::move(handler));
          }
        },
        token, buffers);
  }

 private:
  void begin(const std::shared_ptr<Tls>& tls) {
    kept_ = tls;
    tls_.emplace(socket_, tls->context);
  }

  Socket socket_;
  std::shared_ptr<Tls> kept_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
};

}  // namespace quern
