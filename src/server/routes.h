// The table of routes, and the request target that finds one. Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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
  tokenize,
  detokenize
};

/// Who may ask without a key.
enum class Access : uint8_t { open, metrics, keyed };

struct Route {
  std::string_view path;
  std::string_view methods;  // as in Allow, without HEAD and OPTIONS
  Endpoint endpoint;
  Access access = Access::keyed;
  bool generates = false;  // refused while draining

  bool allows(std::string_view method) const;
};

inline constexpr int kRouteCount = 26;
extern const Route kRoutes[kRouteCount];

/// The path of a request target: without scheme, host, query, doubled and final slashes; percent escapes decoded once.
std::string path_of(std::string_view target);
/// nullptr when there is none. Anything below /v1/models/ is a model; a part of the path below /v1/responses/ is an id.
const Route* find_route(std::string_view path);
/// The model's name in a path below /v1/models/.
std::string_view model_in(std::string_view path);

}  // namespace quern
