#include "backend/cuda/attention_split.cuh"

namespace quern::cuda {

void launch_split_f16(Queue queue, const SplitCall& split, int dims) { launch_split_as<Half>(queue, split, dims); }

}  // namespace quern::cuda
