// ServedModel: a loaded model as its requests see it: engine, text side, grammars. Every session shares it, so that it
// goes when the last of them has; its figures stay. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/constraints.h"
#include "server/metrics/metrics.h"
#include "server/openai/generation.h"
#include "server/token_service.h"

namespace quern {

/// What a model consists of once it is loaded.
struct ModelParts {
  ServerOptions options;                 // the server's, completed with what the model says of itself
  std::unique_ptr<TokenService> engine;  // with everything beneath it
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // may be absent: /v1/chat/completions is refused then
  int64_t bytes = 0;                                  // of memory, which come back when the engine goes
};

struct ServedModel {
  /// `metrics` outlives it.
  ServedModel(ModelParts parts, Metrics& metrics);

  const ServerOptions& options() const { return text.options; }
  /// Ends all its requests, at the end of the server; nobody else but they may use it then.
  void close();
  /// Seconds without progress while there is work.
  double stalled_s(const EngineStats& stats) const;

  Metrics& metrics;
  const TextModel text;
  const TextModel brief;  // the same, whose template gives up after a millisecond
  Constraints constraints;
  std::atomic<uint64_t> next_request = 1;
  std::atomic<int32_t> live_requests = 0;  // submitted, last event not yet delivered
  std::atomic<int64_t> work_since_us = 0;  // when live_requests last rose from 0
  std::unique_ptr<TokenService> engine;    // goes first: requests that run use what is above
};

}  // namespace quern
