// Graphs: the forward halves of steps that come again and again, captured once for each shape and then launched as a
// whole. Thread: executor; captures are made on a thread of their own while steps of that shape still run eagerly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "base/channel.h"
#include "model/step.h"
#include "tensor/device.h"

namespace quern {

class Graphs {
 public:
  /// What a captured step leaves behind.
  struct Outcome {
    Tensor logits;
    int64_t arena_bytes = 0;  // taken when the logits were made
  };
  /// Queues the forward half of a step of this shape. It depends on the shape alone, and may run on any thread.
  using Forward = std::function<Outcome(Queue, const StepShape&)>;

  Graphs(Device& device, Forward forward);
  ~Graphs();

  /// The number of tokens that a step of one token per sequence is padded to.
  static int32_t padded(int32_t tokens);

  /// Launches the captured step and says what it leaves; null when there is none yet, then it will be.
  const Outcome* launch(const StepShape& shape);
  /// Why capturing failed, or nothing; the device is lost then.
  std::string error() const { return error_.get(); }

 private:
  struct Graph {
    std::unique_ptr<Captured> captured;
    Outcome outcome;
  };

  void capture(const StepShape& shape);

  Device& device_;
  Forward forward_;
  Channel<StepShape> wanted_;
  Channel<std::pair<StepShape, Graph>> made_;
  Latest<std::string> error_;
  std::map<int, Graph> graphs_;  // by tokens
  std::map<int, int> uses_;      // steps seen of each size that has no graph
  std::thread thread_;
};

}  // namespace quern
