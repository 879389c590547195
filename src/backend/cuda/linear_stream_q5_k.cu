#include "backend/cuda/linear_stream.cuh"

namespace quern::cuda {

template void launch_stream<Q5_K, Half>(const Queue& queue, const SkinnyJob& job, const StreamLaunch& launch);
template void launch_stream<Q5_K, Bf16>(const Queue& queue, const SkinnyJob& job, const StreamLaunch& launch);

}  // namespace quern::cuda
