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
};

/// The engine itself.
class EngineService final : public TokenService {
 public:
  explicit EngineService(Engine& engine) : engine_(engine) {}
  SubmitResult submit(Request request) override { return engine_.submit(std::move(request)); }
  void cancel(RequestId id) override { engine_.cancel(id); }
  void stop_accepting() override { engine_.stop_accepting(); }
  EngineStats stats() const override { return engine_.stats(); }

 private:
  Engine& engine_;
};

}  // namespace quern
