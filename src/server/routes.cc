#include "server/routes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>

namespace quern {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kResponsePrefix = "/v1/responses/";

/// A path as the table has it.
std::string pattern_of(std::string_view path) {
  if (path.starts_with(kModelPrefix)) return "/v1/models/{id}";
  if (!path.starts_with(kResponsePrefix) || path == "/v1/responses/input_tokens") return std::string(path);
  const size_t slash = path.find('/', kResponsePrefix.size());
  return "/v1/responses/{id}" + std::string(slash == std::string_view::npos ? "" : path.substr(slash));
}

}  // namespace

const Route kRoutes[kRouteCount] = {
    {"/", "GET", Endpoint::root, Access::open},
    {"/ping", "GET, POST", Endpoint::ping, Access::open},
    {"/health", "GET", Endpoint::health, Access::open},
    {"/health/live", "GET", Endpoint::live, Access::open},
    {"/health/ready", "GET", Endpoint::health, Access::open},
    {"/version", "GET", Endpoint::version, Access::open},
    {"/metrics", "GET", Endpoint::metrics, Access::metrics},
    {"/v1/models", "GET", Endpoint::models},
    {"/v1/models/{id}", "GET", Endpoint::model},
    {"/v1/chat/completions", "POST", Endpoint::chat, Access::keyed, true},
    {"/v1/completions", "POST", Endpoint::completions, Access::keyed, true},
    {"/v1/embeddings", "POST", Endpoint::embeddings, Access::keyed, true},
    {"/v1/score", "POST", Endpoint::score, Access::keyed, true},
    {"/score", "POST", Endpoint::score, Access::keyed, true},
    {"/v1/rerank", "POST", Endpoint::rerank, Access::keyed, true},
    {"/v2/rerank", "POST", Endpoint::rerank, Access::keyed, true},
    {"/rerank", "POST", Endpoint::rerank, Access::keyed, true},
    {"/v1/messages", "POST", Endpoint::messages, Access::keyed, true},
    {"/v1/messages/count_tokens", "POST", Endpoint::count_tokens},
    {"/v1/responses", "POST", Endpoint::responses, Access::keyed, true},
    {"/v1/responses/input_tokens", "POST", Endpoint::response_tokens},
    {"/v1/responses/{id}", "GET, DELETE", Endpoint::stored_response},
    {"/v1/responses/{id}/cancel", "POST", Endpoint::stored_response},
    {"/v1/responses/{id}/input_items", "GET", Endpoint::stored_response},
    {"/tokenize", "POST", Endpoint::tokenize},
    {"/detokenize", "POST", Endpoint::detokenize},
};

bool Route::allows(std::string_view method) const {
  if (method == "HEAD") method = "GET";
  const auto listed = fmt::format(", {},", methods);
  return listed.find(fmt::format(" {},", method)) != std::string::npos;
}

std::string path_of(std::string_view target) {
  if (const size_t scheme = target.find("://"); scheme != std::string_view::npos && !target.starts_with('/')) {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  target = target.substr(0, target.find_first_of("?#"));
  std::string path;
  for (size_t i = 0; i < target.size(); ++i) {
    char c = target[i];
    unsigned code = 0;
    if (c == '%' && i + 2 < target.size() &&
        std::from_chars(&target[i + 1], &target[i + 1] + 2, code, 16).ptr == &target[i + 1] + 2) {
      c = static_cast<char>(code);
      i += 2;
    }
    if (c == '/' && !path.empty() && path.back() == '/') continue;
    path += c;
  }
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

const Route* find_route(std::string_view path) {
  const std::string pattern = pattern_of(path);
  const auto* found =
      std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& route) { return route.path == pattern; });
  return found == std::end(kRoutes) ? nullptr : found;
}

std::string_view model_in(std::string_view path) { return path.substr(std::min(path.size(), kModelPrefix.size())); }

}  // namespace quern
