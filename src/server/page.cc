#include "server/page.h"

#include <string>

namespace quern {

bool wants_page(const HttpRequest& request) {
  return request.header("accept").find("text/html") != std::string_view::npos;
}

HttpResponse page_response(const HttpRequest& request) {
  const bool compressed = request.header("accept-encoding").find("gzip") != std::string_view::npos;
  HttpResponse page{200,
                    {{"Content-Type", "text/html; charset=utf-8"},
                     {"Content-Security-Policy", std::string(kWebPage.policy)},
                     {"X-Content-Type-Options", "nosniff"},
                     {"Referrer-Policy", "no-referrer"},
                     {"Cache-Control", "no-cache"},
                     {"Vary", "Accept, Accept-Encoding"}},
                    std::string(compressed ? kWebPage.gzip : kWebPage.html)};
  if (compressed) page.headers.emplace_back("Content-Encoding", "gzip");
  return page;
}

}  // namespace quern
