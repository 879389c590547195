#include "backend/cuda/moe_experts.cuh"

namespace quern::cuda {

template void launch_experts<F16, Half>(const Queue& queue, ExpertJob job, int pairs);
template void launch_experts<BF16, Bf16>(const Queue& queue, ExpertJob job, int pairs);

}  // namespace quern::cuda
