#include "backend/cuda/attention_prompt.cuh"
#include "backend/cuda/blas.h"

namespace quern::cuda {

bool runs_warpgroups() {
  // Where they cannot be compiled they are empty, and need no shared memory.
  cudaFuncAttributes attributes{};
  const auto* kernel = reinterpret_cast<const void*>(attend_prompts<Bf16, PromptShape<128>>);
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.sharedSizeBytes > 0;
}

int64_t prompt_scratch_bytes(const Queue& queue, int head_dim) {
  const int floats = head_dim == 64    ? PromptShape<64>::slot_floats
                     : head_dim == 128 ? PromptShape<128>::slot_floats
                                       : PromptShape<256>::slot_floats;
  return int64_t{2} * native(queue).multiprocessors * floats * sizeof(float);
}

void launch_prompts_bf16(Queue queue, const SplitCall& split) { launch_prompts_as<Bf16>(queue, split); }

}  // namespace quern::cuda
