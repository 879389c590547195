// The table of routes, and the request target that finds one. Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/protocol.h"

namespace quern {

enum class Endpoint : uint8_t {
  root,
  ping,
  live,
  health,
  version,
  metrics,
  models,
  model,
  chat,
  completions,
  embeddings,
  score,
  rerank,
  messages,
  count_tokens,
  responses,
  response_tokens,
  stored_response,
  tokenizer_info,
  openapi,
  tokenize,
  detokenize,
  ollama_chat,
  ollama_generate,
  ollama_embed,
  ollama_embeddings,
  ollama_version,
  ollama_tags,
  ollama_running,
  ollama_show,
  ollama_pull,
  ollama_copy,
  ollama_delete,
  ollama_absent,  // push, create, blobs
  llama_completion,
  infill,
  llama_embedding,
  apply_template,
  props,
  slots,
  lora_adapters,
  sleep,
  wake_up,
  is_sleeping,
  reset_prefix_cache,
  no_adapters
};

/// Who may ask without a key; admin routes are there only with --enable-sleep-mode.
enum class Access : uint8_t { open, metrics, keyed, admin };
constexpr bool needs_key(Access access) { return access == Access::keyed || access == Access::admin; }

struct Route {
  std::string_view path;
  std::string_view methods;  // as in Allow, without HEAD and OPTIONS
  Endpoint endpoint;
  Access access = Access::keyed;
  bool generates = false;  // refused while draining
  Protocol protocol = Protocol::openai;

  bool allows(std::string_view method) const;
};

inline constexpr int kRouteCount = 62;
extern const Route kRoutes[kRouteCount];

/// The path of a request target: without scheme, host, query, doubled and final slashes; percent escapes decoded once.
std::string path_of(std::string_view target);
/// The value of the first `name` in the query of a request target, as it stands; "" for none.
std::string_view query_value(std::string_view target, std::string_view name);
/// nullptr when there is none. Anything below /v1/models/ is a model, anything below /api/blobs/ a blob; a part of the
/// path below /v1/responses/ is an id.
const Route* find_route(std::string_view path);
/// Whose words an answer to this path uses, whether there is such a route or not.
Protocol protocol_of(std::string_view path);
/// The model's name in a path below /v1/models/.
std::string_view model_in(std::string_view path);

}  // namespace quern
