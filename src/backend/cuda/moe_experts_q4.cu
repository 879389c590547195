#include "backend/cuda/moe_experts.cuh"

namespace quern::cuda {

template void launch_experts<Q4_0, Half>(const Queue& queue, ExpertJob job, int pairs);
template void launch_experts<Q4_0, Bf16>(const Queue& queue, ExpertJob job, int pairs);
template void launch_experts<Q4_1, Half>(const Queue& queue, ExpertJob job, int pairs);
template void launch_experts<Q4_1, Bf16>(const Queue& queue, ExpertJob job, int pairs);

}  // namespace quern::cuda
