#include "backend/cuda/attention_prompt.cuh"
#include "backend/cuda/attention_widen.h"

namespace quern::cuda {

void launch_prompts_f8(Queue queue, const SplitCall& split) {
  if (split.widened != nullptr) {
    widen_prompts(queue, split);
    launch_prompts_as<Half, Stored::widened>(queue, on_widened(split));
  }
  launch_prompts_as<Half, Stored::f8>(queue, split);
}

}  // namespace quern::cuda
