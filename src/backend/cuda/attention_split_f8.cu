#include "backend/cuda/attention_split.cuh"

namespace quern::cuda {

void launch_split_f8(Queue queue, const SplitCall& split, int dims) { launch_split_as<Half, true>(queue, split, dims); }

}  // namespace quern::cuda
