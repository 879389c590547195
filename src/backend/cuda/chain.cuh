// The kernel of chain.h: one block on each SM, which are all there at once and wait for each other between records.
#pragma once

#include "backend/cuda/chain_attention.cuh"

namespace quern::cuda {

__device__ __forceinline__ void select_in_chain(const ChainRecord& record) {
  if (blockIdx.x != 0) return;
  for (int64_t i = threadIdx.x; i < record.select.words; i += chain_threads) {
    record.select.y[i] = __ldcg(record.select.x + i);
  }
}

template <typename T>
__device__ __forceinline__ void compute_chain(ChainMemory memory) {
  const ChainProgram& program = memory.program();
  ChainShare::prepare(memory);
  sync_chain();
  ChainRing ring(memory);
  ChainFlags flags(program.flags);
  const ChainPages pages(memory);
  sync_chain();
  for (int i = 0; i < program.records; ++i) {
    const ChainRecord& record = program.record[i];
    if (i > 0 && record.waits) {
      flags.wait_for_all();
    } else {
      sync_chain();
    }
    switch (record.kind) {
      case ChainKind::product: ring = multiply<T>(i, ring); break;
      case ChainKind::attention:
        if (program.attention[record.shape].f8)
          attend<T, E4m3>(i, pages);
        else
          attend<T, T>(i, pages);
        break;
      case ChainKind::select: select_in_chain(record); break;
    }
    if (i + 1 < program.records) {
      const ChainRecord& next = program.record[i + 1];
      if (next.kind == ChainKind::attention) bring_keys_near(next, memory, pages);
      if (next.kind == ChainKind::product) bring_product_near(next);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(chain_threads, 1) run_chain(const __grid_constant__ ChainProgram program) {
#if __CUDA_ARCH__ >= 900
  const ChainMemory memory;
  for (int i = static_cast<int>(threadIdx.x); i * 16 < program.bytes(); i += chain_threads) {
    uint4 words;  // a load of any address: those of parameters want one address in a warp
    asm volatile("ld.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(reinterpret_cast<const std::byte*>(&program) + 16 * i));
    *reinterpret_cast<uint4*>(ChainMemory::at(ChainLayout::program_at + 16 * i)) = words;
  }
  if (threadIdx.x < chain_warps * chain_slots) {
    make_barrier(memory.full(0, static_cast<int>(threadIdx.x)), 1);
    show_barriers();
  }
  __syncthreads();
  compute_chain<T>(memory);
#endif
}

/// Blocks of a chain wait for each other: the launch makes sure that all of them run.
template <typename T>
void launch_chain(const Queue& queue, const ChainProgram& program, int shared_bytes) {
  constexpr int most_shared = 227 << 10;
  static const bool allowed = allow_shared(run_chain<T>, most_shared);
  CHECK(allowed && shared_bytes <= most_shared);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(native(queue).multiprocessors);
  config.blockDim = chain_threads;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = native(queue).stream();
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, run_chain<T>, program), "launch of a chain");
}

}  // namespace quern::cuda
