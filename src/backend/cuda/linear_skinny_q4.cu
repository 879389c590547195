#include "backend/cuda/linear_skinny.cuh"

namespace quern::cuda {

template void launch_skinny<Q4_0, Half>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);
template void launch_skinny<Q4_0, Bf16>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);
template void launch_skinny<Q4_1, Half>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);
template void launch_skinny<Q4_1, Bf16>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);

}  // namespace quern::cuda
