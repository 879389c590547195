#include "backend/cuda/linear_skinny.cuh"

namespace quern::cuda {

template void launch_skinny<F8, Half>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);
template void launch_skinny<F8, Bf16>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);
template void launch_skinny<F8_Block, Half>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);
template void launch_skinny<F8_Block, Bf16>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);

}  // namespace quern::cuda
