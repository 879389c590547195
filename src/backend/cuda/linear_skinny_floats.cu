#include "backend/cuda/linear_skinny.cuh"

namespace quern::cuda {

template void launch_skinny<F16, Half>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);
template void launch_skinny<BF16, Bf16>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);

}  // namespace quern::cuda
