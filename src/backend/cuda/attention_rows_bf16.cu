#include "backend/cuda/attention_rows.cuh"

namespace quern::cuda {

void launch_rows_bf16(Queue queue, const SplitCall& split, int dims) { launch_rows_as<Bf16>(queue, split, dims); }

}  // namespace quern::cuda
