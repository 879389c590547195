#include "backend/cuda/linear_skinny.cuh"

namespace quern::cuda {

template void launch_skinny<Q5_K, Half>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);
template void launch_skinny<Q5_K, Bf16>(const Queue& queue, const SkinnyJob& job, const SkinnyLaunch& launch);

}  // namespace quern::cuda
