// The web page at /, made from src/web by tools/make_page when the server is built.
#pragma once

#include <string_view>

#include "net/http.h"

namespace quern {

struct WebPage {
  std::string_view html;
  std::string_view gzip;    // the same, compressed
  std::string_view policy;  // Content-Security-Policy: names the hashes of its style and script, allows nothing else
};
extern const WebPage kWebPage;

/// Whether the client is a browser.
bool wants_page(const HttpRequest& request);
HttpResponse page_response(const HttpRequest& request);

}  // namespace quern
