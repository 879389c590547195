#include "backend/cuda/attention_prompt.cuh"

namespace quern::cuda {

void launch_prompts_f8(Queue queue, const SplitCall& split) { launch_prompts_as<Half, true>(queue, split); }

}  // namespace quern::cuda
