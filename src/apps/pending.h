// Pending: one request against an engine of this process, waited for. Thread: main.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/channel.h"
#include "base/result.h"
#include "engine/engine.h"

namespace quern {

struct ReplyTimes {
  int64_t first_token_us = 0;  // from submit
  int64_t total_us = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;
};

struct Reply {
  FinishReason reason = FinishReason::error;
  std::string error;
  std::vector<int32_t> tokens;  // the end token included
  std::vector<float> vector;    // of a model that makes such
  ReplyTimes times;
};

/// A request on its way, whose events wait in a channel.
class Pending final : public EventSink {
 public:
  /// Submits `request`; its id and sink are set here.
  static Result<std::shared_ptr<Pending>> submit(Engine& engine, Request request);

  /// Waits for the end; `each` sees new tokens as they come. May be called once.
  Reply wait(const std::function<void(std::span<const int32_t>)>& each = nullptr);
  RequestId id() const { return id_; }

  void deliver(TokenEvent event) override { events_.try_send(std::move(event)); }

 private:
  RequestId id_{};
  int64_t start_us_ = 0;
  Channel<TokenEvent> events_;
};

}  // namespace quern
