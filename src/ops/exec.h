// Exec: where and with what memory operations run. Thread: executor.
#pragma once

#include "tensor/arena.h"
#include "tensor/queue.h"

namespace quern {

/// Watches every kernel; the one place for time per operation.
class Trace {
 public:
  virtual ~Trace() = default;
  virtual void begin(const char* kernel) = 0;
  virtual void end(const char* kernel) = 0;
};

struct Exec {
  Queue queue;
  Arena& arena;
  Trace* trace = nullptr;
  bool measure = false;            // operations take their memory and compute nothing
  Dtype activations = Dtype::f32;  // of what operations hand on; the residual stream and logits are f32 always
};

}  // namespace quern
