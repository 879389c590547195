#include "backend/cuda/moe_one.cuh"

namespace quern::cuda {

template bool launch_one_experts<F16, Half>(const Queue& queue, const ExpertJob& job);
template bool launch_one_experts<BF16, Bf16>(const Queue& queue, const ExpertJob& job);
template bool launch_one_experts<F8, Half>(const Queue& queue, const ExpertJob& job);
template bool launch_one_experts<F8, Bf16>(const Queue& queue, const ExpertJob& job);

}  // namespace quern::cuda
