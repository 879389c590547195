// HttpRequest and HttpResponse as plain data; what a handler sees of the network. Values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quern {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string target;   // as sent: path and query
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string peer;  // address of the client

  /// The value of the first header of that (lower case) name, "" when there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  // Content-Length, Connection and Transfer-Encoding are added when it is sent
  std::string body;
};

std::string_view reason_phrase(int status);

}  // namespace quern
