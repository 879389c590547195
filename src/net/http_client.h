// HttpClient: one connection to an HTTP/1.1 server; calls wait for the answer and can see its body as it arrives.
// Thread: the one that uses it; cancel() from any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http.h"

namespace quern {

struct HttpUrl {
  std::string host;
  int port = 80;
  std::string path;  // without a final slash; may be empty
};

/// `http://HOST[:PORT][/PATH]`.
Result<HttpUrl> parse_url(std::string_view url);

class HttpClient {
 public:
  /// Gets the body in pieces as they arrive; false ends the connection.
  using OnPiece = std::function<bool(std::string_view piece)>;

  HttpClient(std::string host, int port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Connects when needed, sends, and waits at most `timeout` for the whole answer. The method, target, headers and
  /// body of `request` count. The connection is kept for the next call if the server allows it. The answer's header
  /// names are in lower case. With `on_piece` the body of a 2xx answer goes there and the returned one is empty.
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
