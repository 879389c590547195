#include "backend/cuda/chain.cuh"

namespace quern::cuda {

void launch_chain_bf16(const Queue& queue, const ChainProgram& program, int shared_bytes) {
  launch_chain<Bf16>(queue, program, shared_bytes);
}

}  // namespace quern::cuda
