#include "backend/cuda/linear_stream.cuh"

namespace quern::cuda {

template void launch_stream<Q5_0, Half>(const Queue& queue, const SkinnyJob& job, const StreamLaunch& launch);
template void launch_stream<Q5_0, Bf16>(const Queue& queue, const SkinnyJob& job, const StreamLaunch& launch);
template void launch_stream<Q8_0, Half>(const Queue& queue, const SkinnyJob& job, const StreamLaunch& launch);
template void launch_stream<Q8_0, Bf16>(const Queue& queue, const SkinnyJob& job, const StreamLaunch& launch);

}  // namespace quern::cuda
