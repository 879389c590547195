#include "backend/cuda/moe_experts.cuh"

namespace quern::cuda {

template void launch_experts<Q5_0, Half>(const Queue& queue, ExpertJob job, int pairs);
template void launch_experts<Q5_0, Bf16>(const Queue& queue, ExpertJob job, int pairs);
template void launch_experts<Q8_0, Half>(const Queue& queue, ExpertJob job, int pairs);
template void launch_experts<Q8_0, Bf16>(const Queue& queue, ExpertJob job, int pairs);

}  // namespace quern::cuda
