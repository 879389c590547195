#include "backend/cuda/attention_rows.cuh"

namespace quern::cuda {

void launch_rows_f8(Queue queue, const SplitCall& split, int dims) { launch_rows_as<Half, true>(queue, split, dims); }

}  // namespace quern::cuda
