// The proxy that the environment names for a URL: http_proxy, https_proxy, all_proxy and no_proxy, in small or capital
// letters, as curl reads them. Values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http_client.h"

namespace quern {

struct Proxy {
  HttpUrl url;
  std::string authorization;  // a header's value, which goes to the proxy alone and into no log; "" for none
};

/// None for this machine itself, and where no_proxy says so.
Result<std::optional<Proxy>> proxy_for(const HttpUrl& url);

/// http://[USER[:PASSWORD]@]HOST[:PORT], with or without its scheme; user and password may have percent escapes.
Result<Proxy> parse_proxy(std::string_view text);

/// Whether a list such as "localhost,.example.org,10.0.0.1" has the host: itself, or one of its domains. "*" has all.
bool is_listed(std::string_view list, std::string_view host);

}  // namespace quern
