// LiveSession: a request that the engine is working for, as the server keeps it. Any thread.
#pragma once

#include "server/openai/errors.h"

namespace quern {

class LiveSession {
 public:
  virtual ~LiveSession() = default;
  /// Submits what the engine is asked.
  virtual void start() = 0;
  /// Ends it with an error, if it has not ended.
  virtual void abort(ApiError error) = 0;
};

}  // namespace quern
