// The executor of a model that answers with vectors: hidden states, pooled, and perhaps scores made of them. A thread
// runs one step at a time: there is nothing to sample, and a step does not need the result of the one before it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/executor.h"
#include "engine/model_executor.h"
#include "model/pooler.h"
#include "tensor/device.h"

namespace quern {

/// What it runs; both outlive it.
struct PoolingModel {
  const Decoder& decoder;
  const Pooler& pooler;
  int32_t dim = 0;     // of hidden states
  bool causal = true;  // else sequences are never split, and keys and values are of their step only
};

/// Pages that a model which is not causal needs for a step.
int32_t step_pages(int32_t max_tokens, int32_t rows, int32_t page_tokens);

/// Device bytes beside weights and pages; exact. `model` may be that of a plan.
int64_t pooling_executor_bytes(const PoolingModel& model, Device& device, const ModelExecutorOptions& options);

/// Takes all its memory now. Of `options`, vocab and capture mean nothing here.
Result<std::unique_ptr<Executor>> make_pooling_executor(const PoolingModel& model, Device& device,
                                                        const ModelExecutorOptions& options);

}  // namespace quern
