// HttpClient: one connection to an HTTP/1.1 server, encrypted or not; calls wait for the answer and can see its body as
// it arrives. Thread: the one that uses it; cancel() from any.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http.h"

namespace quern {

struct HttpUrl {
  std::string host;
  int port = 80;
  std::string path;  // with its query; without a final slash; may be empty
  bool tls = false;  // https

  /// Scheme, host and port: what a key or a token belongs to.
  std::string origin() const;
  std::string text() const { return origin() + path; }
};

/// `http[s]://HOST[:PORT][/PATH]`.
Result<HttpUrl> parse_url(std::string_view url);

/// How an answer is taken.
struct HttpReading {
  std::chrono::milliseconds timeout{30'000};                     // for all of it
  std::chrono::milliseconds quiet{0};                            // longest time without a byte; 0: any
  int64_t max_body_bytes = std::numeric_limits<int64_t>::max();  // of a body that is returned
  std::function<bool(const HttpResponse& head)> on_head = {};    // false ends the connection
  std::function<bool(std::string_view piece)> on_piece = {};     // gets the body of a 2xx answer; false ends it
};

/// Over https the server must show a certificate of its name from an authority that the system trusts.
class HttpClient {
 public:
  /// Gets the body in pieces as they arrive; false ends the connection.
  using OnPiece = std::function<bool(std::string_view piece)>;

  HttpClient(std::string host, int port);
  /// To the host of `url`, whose path is not used, by the proxy that the environment names for it (net/proxy.h).
  explicit HttpClient(const HttpUrl& url);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Connects when needed, sends, and waits for the whole answer. The method, target, headers and body of `request`
  /// count. The connection is kept for the next call if the server allows it. The answer's header names are in lower
  /// case. With `on_piece` the body of a 2xx answer goes there and the returned one is empty.
  Result<HttpResponse> send(const HttpRequest& request, const HttpReading& reading);
  Result<HttpResponse> send(const HttpRequest& request, std::chrono::milliseconds timeout,
                            const OnPiece& on_piece = {});

  void close();
  /// Any thread: a call in progress fails soon, and all later ones at once.
  void cancel();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quern
