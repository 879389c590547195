// Whether this build has kernels for the GPU it runs on.
#include "backend/cuda/blas.h"

namespace quern::cuda {
namespace {

__global__ void probe() {}

}  // namespace

bool runs_kernels() {
  cudaFuncAttributes attributes{};
  const bool runs = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(probe)) == cudaSuccess;
  if (!runs) cudaGetLastError();
  return runs;
}

}  // namespace quern::cuda
