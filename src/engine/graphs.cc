#include "engine/graphs.h"

#include <algorithm>
#include <utility>

namespace quern {
namespace {

constexpr size_t most_graphs = 64;
/// A shape that came once may not come again.
constexpr int uses_before_capture = 2;

}  // namespace

Graphs::Graphs(Device& device, Forward forward) : device_(device), forward_(std::move(forward)) {
  thread_ = std::thread([this] {
    while (const auto shape = wanted_.receive()) capture(*shape);
  });
}

Graphs::~Graphs() {
  wanted_.close();
  thread_.join();
}

int32_t Graphs::padded(int32_t tokens) {
  const int32_t step = tokens <= 8 ? 1 : tokens <= 32 ? 4 : tokens <= 128 ? 8 : tokens <= 512 ? 16 : 64;
  return (tokens + step - 1) / step * step;
}

const Graphs::Outcome* Graphs::launch(const StepShape& shape) {
  while (auto made = made_.try_receive()) graphs_[made->first.tokens] = std::move(made->second);
  const auto found = graphs_.find(shape.tokens);
  if (found == graphs_.end()) {
    if (graphs_.size() < most_graphs && ++uses_[shape.tokens] == uses_before_capture) {
      wanted_.try_send(StepShape(shape));
    }
    return nullptr;
  }
  found->second.captured->launch();
  return &found->second.outcome;
}

void Graphs::capture(const StepShape& shape) {
  Graph graph;
  try {
    graph.captured = device_.capture([&](Queue queue) { graph.outcome = forward_(queue, shape); });
  } catch (const DeviceLost& lost) {
    return error_.set(lost.reason);
  }
  if (graph.captured) made_.try_send(std::pair(shape, std::move(graph)));
}

}  // namespace quern
