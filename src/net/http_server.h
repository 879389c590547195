// HttpServer: an HTTP/1.1 server on a few event loops. Handlers run on the loop of their connection and must not block;
// answers may come from any thread, whole or as a stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http.h"
#include "net/tls.h"

namespace quern {

/// The answer to one request. All calls are allowed from any thread and return at once; after the end of the answer, or
/// when the client is gone, they do nothing. Callbacks run on the loop of the connection.
class Responder {
 public:
  virtual ~Responder() = default;

  /// The whole answer.
  virtual void send(HttpResponse response) = 0;

  /// An answer in pieces: begin_stream, any number of writes, end. Each write is sent as one piece.
  virtual void begin_stream(int status, HttpHeaders headers) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;

  /// `callback` runs once when the client goes away, reads too slowly or the server stops before the answer is
  /// complete.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  /// `callback` runs each time that nothing was sent for `interval`, until the answer is complete.
  virtual void on_idle(std::chrono::milliseconds interval, std::function<void()> callback) = 0;
  /// Runs `task` on the loop of the connection, after what was posted before. Dropped when the server has stopped.
  virtual void post(std::function<void()> task) = 0;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;     // 0: any free one
  std::string uds;  // path of a socket to listen on in place of host and port
  int shards = 1;   // event loops, a thread each
  TlsFiles tls;     // with certificates: HTTPS, and nothing else
  int max_connections = 4096;
  int max_connections_per_peer = 3072;  // of one address, of one /64 network of IPv6; 0: no limit
  int64_t max_header_bytes = 32 << 10;
  int64_t max_body_bytes = 16 << 20;
  int64_t max_bodies_bytes = int64_t{1} << 30;       // of all requests being read or answered
  int64_t max_unsent_bytes = 4 << 20;                // of one stream; a slower reader is dropped
  std::chrono::milliseconds header_timeout{20'000};  // from the first byte to the end of the header
  std::chrono::milliseconds body_timeout{30'000};    // without a byte; the whole body may take ten times as long
  std::chrono::milliseconds idle_timeout{75'000};    // between two requests
  std::chrono::milliseconds write_timeout{30'000};   // without the client taking a byte

  /// Looks at a request before its body is read; an answer here refuses it.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> check_head;
  /// The answer to what is no good HTTP, or too large.
  std::function<HttpResponse(int status, std::string_view message)> refusal;
};

class HttpServer {
 public:
  using Handler = std::function<void(HttpRequest request, std::shared_ptr<Responder> responder)>;

  /// Listens and serves; the error says why it cannot.
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options, Handler handler);
  /// Closes every connection, answered or not, and joins the threads.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;         // 0 for a socket in the file system
  int connections() const;  // open at this moment
  /// No new connections, and no second request on the present ones. Returns when all are closed, or after `time`.
  void finish(std::chrono::milliseconds time);

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quern
