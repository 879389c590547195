#include "backend/cuda/chain.cuh"

namespace quern::cuda {

void launch_chain_f16(const Queue& queue, const ChainProgram& program, int shared_bytes) {
  launch_chain<Half>(queue, program, shared_bytes);
}

}  // namespace quern::cuda
