// The executor of a real model: a thread that stages a plan's inputs, runs the decoder, samples, and sends results.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "cache/page_pool.h"
#include "engine/executor.h"
#include "engine/scorer.h"
#include "model/decoder.h"
#include "tensor/device.h"

namespace quern {

struct ModelExecutorOptions {
  int32_t rows = 64;
  int32_t max_tokens = 512;   // of one step
  int32_t max_model_len = 0;  // of one row
  int32_t pages = 0;          // of the KV pool
  int32_t vocab = 0;
  KvLayout kv;
  Dtype kv_dtype = Dtype::f16;
  Dtype activations = Dtype::f32;
  bool capture = false;        // steps that come often become one launch, where the device can
  Trace* trace = nullptr;      // watches every kernel
  int32_t scored_tokens = 64;  // of prompts, whose logits are there at the same time
  SeeLogits see_logits;        // is shown the logits of scored prompt tokens
};

/// The groups by which a scheduler counts pages of this layout.
std::vector<GroupSpec> groups_of(const KvLayout& layout);
/// Bytes of the recurrent states of all rows; they stand behind the pages of the pool.
int64_t row_state_bytes(const ModelExecutorOptions& options);
/// Device bytes the executor takes beside weights, KV pages and states: activations, logits, step inputs, page tables.
/// Exact; `decoder` may be that of a plan.
int64_t model_executor_bytes(const Decoder& decoder, Device& device, const ModelExecutorOptions& options);

/// Takes all its memory now. `decoder` and `device` outlive it.
Result<std::unique_ptr<Executor>> make_model_executor(const Decoder& decoder, Device& device,
                                                      const ModelExecutorOptions& options);

}  // namespace quern
