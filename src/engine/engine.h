// Engine: requests in, tokens out. Owns the engine thread; submit, cancel and stats may be called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/page_pool.h"
#include "engine/executor.h"
#include "engine/plan.h"
#include "engine/request.h"

namespace quern {

struct EngineOptions {
  std::vector<GroupSpec> groups{GroupSpec{}};
  int32_t pages = 0;          // of the pool, all of one size
  int32_t max_num_seqs = 64;  // rows
  int32_t max_num_batched_tokens = 512;
  int32_t chunked_prefill_size = 0;  // tokens of one prompt in a step in which others decode; 0: what the budget leaves
  int32_t max_model_len = 0;         // tokens of a sequence, prompt and answer
  int32_t max_queued_requests = 1024;  // waiting; more are refused
  int32_t depth = 2;                   // steps planned ahead
  bool prefix_caching = true;
  bool reserve_max_len = false;  // pages for max_model_len at admission: only for the benchmark of paging

  /// Guesses what follows a row's known tokens, of which up to `unconfirmed` more are on their way: at most `limit`,
  /// and `limit` never exceeds max_drafts.
  using Draft = std::function<std::vector<int32_t>(std::span<const int32_t> known, int unconfirmed, int limit)>;
  Draft draft;
  int32_t max_drafts = 0;  // of a row in a step

  // What crosses the border to the executor, seen on the engine thread just before or after (engine/plan_log.h).
  std::function<void(const StepPlan&)> on_plan;
  std::function<void(const StepMasks&)> on_masks;
  std::function<void(const StepResult&)> on_result;
  /// The device died and every request has been answered; told once, on the engine thread.
  std::function<void(const std::string& reason)> on_dead;
};

/// Bounds of EngineStats::steps_by_tokens; what is above the last has a place of its own.
inline constexpr std::array<int32_t, 13> step_size_bounds = {1,   8,    16,   32,   64,   128,  256,
                                                             512, 1024, 2048, 4096, 8192, 16384};

/// Counters and gauges; one consistent copy.
struct EngineStats {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t pages_total = 0;
  int32_t pages_free = 0;    // neither used nor cached
  int32_t pages_cached = 0;  // only the prefix tree holds them
  int64_t steps = 0;
  int64_t prompt_tokens = 0;
  int64_t generation_tokens = 0;
  int64_t prefix_queries_tokens = 0;
  int64_t prefix_hits_tokens = 0;
  int64_t preemptions = 0;
  int64_t corrupted = 0;  // rows whose logits were not finite
  std::array<int64_t, step_size_bounds.size() + 1> steps_by_tokens{};
  int64_t requests_accepted = 0;
  int64_t requests_finished[5] = {};  // by FinishReason
  int64_t last_step_us = 0;           // now_us() when the last step ended
  int64_t host_us = 0;                // engine thread's own work in steps, total
  int64_t device_us = 0;              // device time of steps, total
  int64_t step_tokens_last = 0;       // tokens of the last step
  bool dead = false;                  // the device died
};

enum class SubmitResult : uint8_t { accepted, queue_full, too_long, stopping };

class Engine {
 public:
  Engine(const EngineOptions& options, std::unique_ptr<Executor> executor);
  /// Fails what is still running with FinishReason::cancelled, waits for the steps in flight, stops the thread.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  SubmitResult submit(Request request);
  /// Tokens of a sequence, prompt and answer, at most: max_model_len, or less when the pages cannot hold it.
  int max_sequence_tokens() const;
  /// The request ends with FinishReason::cancelled, unless it has ended.
  void cancel(RequestId id);
  /// No new requests; running ones go on. Idempotent.
  void stop_accepting();
  EngineStats stats() const;
  /// Forgets every cached prefix that no sequence uses.
  void reset_prefix_cache();
  /// Empty when everything is as it must be in an idle engine: free + cached pages = all, nothing counted twice; else
  /// what is wrong. Waits until idle.
  std::string check_drained();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace quern
