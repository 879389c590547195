#include "net/proxy.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fmt/format.h>

namespace quern {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// The variable of that name in small letters, or in capitals.
std::string variable(std::string name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    value = std::getenv(name.c_str());
  }
  return value == nullptr ? "" : value;
}

bool is_this_machine(const std::string& host) {
  return host == "localhost" || host.ends_with(".localhost") || host == "::1" || host.starts_with("127.");
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool is_listed(std::string_view list, std::string_view host) {
  const std::string wanted = lower(host);
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string entry = lower(trimmed(list.substr(begin, end - begin)));
    begin = end + 1;
    if (entry == "*") return true;
    if (entry.starts_with("*.")) entry.erase(0, 1);
    if (entry.starts_with('.')) entry.erase(0, 1);
    if (!entry.empty() && (wanted == entry || wanted.ends_with("." + entry))) return true;
  }
  return false;
}

Result<std::optional<HttpUrl>> proxy_for(const HttpUrl& url) {
  const std::string host = lower(url.host);
  if (is_this_machine(host) || is_listed(variable("no_proxy"), host)) return std::optional<HttpUrl>();
  const char* const name = url.tls ? "https_proxy" : "http_proxy";
  std::string text = variable(name);
  if (text.empty()) text = variable("all_proxy");
  if (text.empty()) return std::optional<HttpUrl>();
  if (text.find("://") == std::string::npos) text = "http://" + text;
  auto proxy = parse_url(text);
  if (!proxy.ok() || proxy->tls)
    return Error{fmt::format("${} must name a proxy as http://HOST:PORT, without a user's name", name)};
  return std::optional(std::move(*proxy));
}

}  // namespace quern
