// TokenService: what the server needs of an engine. Any thread.
#pragma once

#include <utility>

#include "engine/engine.h"
#include "engine/request.h"

namespace quern {

class TokenService {
 public:
  virtual ~TokenService() = default;
  virtual SubmitResult submit(Request request) = 0;
  virtual void cancel(RequestId id) = 0;
  virtual void stop_accepting() = 0;
  virtual EngineStats stats() const = 0;
  /// Nothing to do for a service that keeps no prefixes.
  virtual void reset_prefix_cache() {}
};

}  // namespace quern
