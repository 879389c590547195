#include "net/http.h"

#include <algorithm>

namespace quern {

std::string_view HttpRequest::header(std::string_view name) const {
  const auto it =
      std::find_if(headers.begin(), headers.end(), [&](const auto& header) { return header.first == name; });
  return it == headers.end() ? std::string_view() : std::string_view(it->second);
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Payload Too Large";
    case 415: return "Unsupported Media Type";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Unknown";
  }
}

}  // namespace quern
