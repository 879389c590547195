#include "server/routes.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/escapes.h"

namespace quern {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kBlobPrefix = "/api/blobs/";
constexpr std::string_view kResponsePrefix = "/v1/responses/";

/// A path as the table has it.
std::string pattern_of(std::string_view path) {
  if (path.starts_with(kModelPrefix)) return "/v1/models/{id}";
  if (path.starts_with(kBlobPrefix)) return "/api/blobs/{digest}";
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
    {"/v1/messages", "POST", Endpoint::messages, Access::keyed, true, Protocol::anthropic},
    {"/v1/messages/count_tokens", "POST", Endpoint::count_tokens, Access::keyed, false, Protocol::anthropic},
    {"/v1/responses", "POST", Endpoint::responses, Access::keyed, true},
    {"/v1/responses/input_tokens", "POST", Endpoint::response_tokens},
    {"/v1/responses/{id}", "GET, DELETE", Endpoint::stored_response},
    {"/v1/responses/{id}/cancel", "POST", Endpoint::stored_response},
    {"/v1/responses/{id}/input_items", "GET", Endpoint::stored_response},
    {"/openapi.json", "GET", Endpoint::openapi},
    {"/tokenizer_info", "GET", Endpoint::tokenizer_info},
    {"/tokenize", "POST", Endpoint::tokenize},
    {"/detokenize", "POST", Endpoint::detokenize},
    {"/api/chat", "POST", Endpoint::ollama_chat, Access::keyed, true, Protocol::ollama},
    {"/api/generate", "POST", Endpoint::ollama_generate, Access::keyed, true, Protocol::ollama},
    {"/api/embed", "POST", Endpoint::ollama_embed, Access::keyed, true, Protocol::ollama},
    {"/api/embeddings", "POST", Endpoint::ollama_embeddings, Access::keyed, true, Protocol::ollama},
    {"/api/version", "GET", Endpoint::ollama_version, Access::keyed, false, Protocol::ollama},
    {"/api/tags", "GET", Endpoint::ollama_tags, Access::keyed, false, Protocol::ollama},
    {"/api/ps", "GET", Endpoint::ollama_running, Access::keyed, false, Protocol::ollama},
    {"/api/show", "POST", Endpoint::ollama_show, Access::keyed, false, Protocol::ollama},
    {"/api/pull", "POST", Endpoint::ollama_pull, Access::keyed, false, Protocol::ollama},
    {"/api/push", "POST", Endpoint::ollama_absent, Access::keyed, false, Protocol::ollama},
    {"/api/create", "POST", Endpoint::ollama_absent, Access::keyed, false, Protocol::ollama},
    {"/api/copy", "POST", Endpoint::ollama_copy, Access::keyed, false, Protocol::ollama},
    {"/api/delete", "DELETE", Endpoint::ollama_delete, Access::keyed, false, Protocol::ollama},
    {"/api/blobs/{digest}", "HEAD, POST", Endpoint::ollama_absent, Access::keyed, false, Protocol::ollama},
    {"/completion", "POST", Endpoint::llama_completion, Access::keyed, true, Protocol::llama},
    {"/completions", "POST", Endpoint::llama_completion, Access::keyed, true, Protocol::llama},
    {"/infill", "POST", Endpoint::infill, Access::keyed, true, Protocol::llama},
    {"/embedding", "POST", Endpoint::llama_embedding, Access::keyed, true, Protocol::llama},
    {"/embeddings", "POST", Endpoint::llama_embedding, Access::keyed, true, Protocol::llama},
    {"/apply-template", "POST", Endpoint::apply_template, Access::keyed, false, Protocol::llama},
    {"/props", "GET", Endpoint::props, Access::keyed, false, Protocol::llama},
    {"/slots", "GET", Endpoint::slots, Access::keyed, false, Protocol::llama},
    {"/lora-adapters", "GET", Endpoint::lora_adapters, Access::keyed, false, Protocol::llama},
    {"/v1/health", "GET", Endpoint::health, Access::open, false, Protocol::llama},
    {"/models", "GET", Endpoint::models},
    {"/chat/completions", "POST", Endpoint::chat, Access::keyed, true},
    {"/reranking", "POST", Endpoint::rerank, Access::keyed, true},
    {"/v1/reranking", "POST", Endpoint::rerank, Access::keyed, true},
    {"/sleep", "POST", Endpoint::sleep, Access::admin},
    {"/wake_up", "POST", Endpoint::wake_up, Access::admin},
    {"/is_sleeping", "GET", Endpoint::is_sleeping, Access::admin},
    {"/reset_prefix_cache", "POST", Endpoint::reset_prefix_cache, Access::admin},
    {"/v1/load_lora_adapter", "POST", Endpoint::no_adapters},
    {"/v1/unload_lora_adapter", "POST", Endpoint::no_adapters},
};

bool Route::allows(std::string_view method) const {
  const auto listed = fmt::format(" {},", methods);
  const auto lists = [&](std::string_view one) { return listed.find(fmt::format(" {},", one)) != std::string::npos; };
  return lists(method) || (method == "HEAD" && lists("GET"));
}

std::string path_of(std::string_view target) {
  if (const size_t scheme = target.find("://"); scheme != std::string_view::npos && !target.starts_with('/')) {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  target = target.substr(0, target.find_first_of("?#"));
  std::string path;
  for (const char c : percent_decoded(target)) {
    if (c == '/' && !path.empty() && path.back() == '/') continue;
    path += c;
  }
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string_view query_value(std::string_view target, std::string_view name) {
  const size_t query = target.find('?');
  std::string_view rest = query == std::string_view::npos ? "" : target.substr(query + 1);
  rest = rest.substr(0, rest.find('#'));
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    if (pair.substr(0, pair.find('=')) == name && pair.size() > name.size()) return pair.substr(name.size() + 1);
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
  }
  return "";
}

const Route* find_route(std::string_view path) {
  const std::string pattern = pattern_of(path);
  const auto* found =
      std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& route) { return route.path == pattern; });
  return found == std::end(kRoutes) ? nullptr : found;
}

Protocol protocol_of(std::string_view path) {
  if (path.starts_with("/api/")) return Protocol::ollama;
  const Route* route = find_route(path);
  return route == nullptr ? Protocol::openai : route->protocol;
}

std::string_view model_in(std::string_view path) { return path.substr(std::min(path.size(), kModelPrefix.size())); }

}  // namespace quern
