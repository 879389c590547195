#include "backend/cuda/linear_one.cuh"

namespace quern::cuda {

template void launch_one<F16, Half>(const Queue& queue, const OneJob& job, const OneLaunch& launch);
template void launch_one<BF16, Bf16>(const Queue& queue, const OneJob& job, const OneLaunch& launch);
template void launch_one<F8, Half>(const Queue& queue, const OneJob& job, const OneLaunch& launch);
template void launch_one<F8, Bf16>(const Queue& queue, const OneJob& job, const OneLaunch& launch);

}  // namespace quern::cuda
