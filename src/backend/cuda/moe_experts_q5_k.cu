#include "backend/cuda/moe_experts.cuh"

namespace quern::cuda {

template void launch_experts<Q5_K, Half>(const Queue& queue, ExpertJob job, int pairs);
template void launch_experts<Q5_K, Bf16>(const Queue& queue, ExpertJob job, int pairs);

}  // namespace quern::cuda
