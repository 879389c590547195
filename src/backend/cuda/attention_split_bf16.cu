#include "backend/cuda/attention_split.cuh"

namespace quern::cuda {

void launch_split_bf16(Queue queue, const SplitCall& split, int dims) { launch_split_as<Bf16>(queue, split, dims); }

}  // namespace quern::cuda
