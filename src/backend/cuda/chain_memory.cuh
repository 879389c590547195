// A block of a chain: its shared memory, its rings, and how it waits for the others.
#pragma once

#include "backend/cuda/barriers.cuh"
#include "backend/cuda/chain_records.h"

namespace quern::cuda {

extern __shared__ __align__(128) std::byte chain_shared[];

/// Where things are in it; known to be shared memory wherever this is used.
struct ChainMemory {
  static __device__ __forceinline__ std::byte* at(int offset) { return chain_shared + offset; }
  __device__ __forceinline__ const ChainProgram& program() const {
    return *reinterpret_cast<const ChainProgram*>(at(ChainLayout::program_at));
  }
  __device__ unsigned address() const { return static_cast<unsigned>(__cvta_generic_to_shared(chain_shared)); }
  __device__ unsigned full(int warp, int slot) const {
    return address() + ChainLayout::full_at + 8 * (warp * chain_slots + slot);
  }
  /// The lines of a product that a warp does: first and end.
  __device__ int2& share(int product, int warp) const {
    return reinterpret_cast<int2*>(at(ChainLayout::shares_at))[product * chain_warps + warp];
  }
  __device__ int slot_at(int warp, int slot) const {
    return program().ring_at + (warp * program().slots + slot) * program().slot_bytes;
  }
  /// Sums of every warp for 16 rows.
  __device__ float* sums(int buffer) const {
    return reinterpret_cast<float*>(at(ChainLayout::sums_at)) + buffer * chain_warps * panel_height;
  }
  __device__ float* few() const { return reinterpret_cast<float*>(at(ChainLayout::few_at)); }
  __device__ int* pages() const { return reinterpret_cast<int*>(at(ChainLayout::pages_at)); }
  __device__ std::byte* x() const { return at(program().x_at); }
};

/// A barrier of the warps that compute.
__device__ __forceinline__ void sync_chain() { sync_threads(1, chain_threads); }

/// What a warp does of a product. Rows are dealt out to all warps; a panel is a block's, whose warps share its pieces.
struct ChainShare {
  int line;
  int line_end;
  int line_step;
  int piece_begin;
  int piece_end;

  __device__ __forceinline__ ChainShare(ChainMemory memory, int number, int warp) {
    const ChainProduct& product = memory.program().product[number];
    const int2 lines = memory.share(number, warp);
    const bool rows = product.lead_bytes < 0;
    line = lines.x;
    line_end = lines.y;
    line_step = rows ? 1 : static_cast<int>(gridDim.x);
    piece_begin = rows ? 0 : product.pieces * warp / chain_warps;
    piece_end = rows ? product.pieces : product.pieces * (warp + 1) / chain_warps;
  }
  __device__ bool empty() const { return line >= line_end || piece_begin >= piece_end; }

  static __device__ __forceinline__ void prepare(ChainMemory memory) {
    const int number = static_cast<int>(threadIdx.x) / chain_warps;
    const int warp = static_cast<int>(threadIdx.x) % chain_warps;
    if (number >= chain_products || memory.program().product[number].parts == 0) return;
    const ChainProduct& product = memory.program().product[number];
    const auto lines = static_cast<unsigned>(product.lines_end[product.parts - 1]);
    if (product.lead_bytes < 0) {
      const unsigned all = gridDim.x * chain_warps;
      const unsigned mine = blockIdx.x * chain_warps + warp;
      memory.share(number, warp) = {static_cast<int>(lines * mine / all), static_cast<int>(lines * (mine + 1) / all)};
    } else {
      memory.share(number, warp) = {static_cast<int>(blockIdx.x), static_cast<int>(lines)};
    }
  }
};

__device__ __forceinline__ int part_of(const ChainProduct& product, int line) {
  int part = 0;
  while (line >= product.lines_end[part]) ++part;
  return part;
}

/// What a warp sends for next, in the order in which it uses it, across the ends of products: while blocks wait for
/// each other the next weights come. For one lane.
class ChainFeed {
 public:
  __device__ __forceinline__ void enter_record(ChainMemory memory, int from) {
    const ChainProgram& program = memory.program();
#pragma unroll 1
    for (record_ = from; record_ < program.records; ++record_) {
      if (program.record[record_].kind != ChainKind::product) continue;
      const int number = program.record[record_].shape;
      const ChainShare share(memory, number, static_cast<int>(threadIdx.x) / 32);
      if (share.empty()) continue;
      const ChainProduct& product = program.product[number];
      line_ = share.line;
      line_end_ = share.line_end;
      piece_ = share.piece_begin;
      piece_end_ = share.piece_end;
      piece_bytes_ = product.piece_bytes;
      header_bytes_ = product.header_bytes;
      return enter_line(memory);
    }
    record_ = -1;
  }

  /// Sends for the next piece, if there is one.
  __device__ __forceinline__ void fill(ChainMemory memory, int slot) {
    if (record_ < 0) return;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const unsigned to = memory.address() + memory.slot_at(warp, slot);
    const unsigned full = memory.full(warp, slot);
    const int bytes = min(piece_bytes_, left_);
    arrive_expecting(full, bytes + header_bytes_);
    copy_bytes(to, next_, bytes, full);
    const ChainProduct& product = memory.program().product[memory.program().record[record_].shape];
    if (header_bytes_ > 0) {
      const int header = product.pieces_of_header == 2 ? piece_ / 2 : piece_;
      copy_bytes(to + piece_bytes_, headers_ + header * header_bytes_, header_bytes_, full);
    }
    next_ += piece_bytes_;
    left_ -= piece_bytes_;
    if (++piece_ < piece_end_) return;
    const bool rows = product.lead_bytes < 0;
    piece_ = rows ? 0 : product.pieces * warp / chain_warps;
    line_ += rows ? 1 : static_cast<int>(gridDim.x);
    if (line_ < line_end_) return enter_line(memory);
    enter_record(memory, record_ + 1);
  }

 private:
  __device__ __forceinline__ void enter_line(ChainMemory memory) {
    const ChainRecord& record = memory.program().record[record_];
    const ChainProduct& product = memory.program().product[record.shape];
    const int part = part_of(product, line_);
    const int first = part == 0 ? 0 : product.lines_end[part - 1];
    const int lead = max(product.lead_bytes, 0);
    headers_ = record.product.data[part] + int64_t{line_ - first} * product.line_bytes;
    next_ = headers_ + lead + piece_ * piece_bytes_;
    left_ = product.line_bytes - lead - piece_ * piece_bytes_;
  }

  const std::byte* headers_;
  const std::byte* next_;
  int left_;    // bytes of the line
  int record_;  // -1: nothing is left
  int line_;
  int line_end_;
  int piece_;
  int piece_end_;
  int piece_bytes_;
  int header_bytes_;
};

/// A warp's ring.
class ChainRing {
 public:
  __device__ explicit ChainRing(ChainMemory memory) : slots_(memory.program().slots) {
    if (threadIdx.x % 32 != 0) return;
    feed_.enter_record(memory, 0);
#pragma unroll 1
    for (int slot = 0; slot < slots_; ++slot) feed_.fill(memory, slot);
  }
  static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ __forceinline__ const std::byte* wait(ChainMemory memory) const {
    wait_for(memory.full(warp(), slot_), phase_);
    return ChainMemory::at(memory.slot_at(warp(), slot_));
  }
  /// What wait() gave is used.
  __device__ __forceinline__ void next(ChainMemory memory) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) feed_.fill(memory, slot_);
    if (++slot_ < slots_) return;
    slot_ = 0;
    phase_ ^= 1;
  }

 private:
  ChainFeed feed_;
  int slots_;
  int slot_ = 0;
  unsigned phase_ = 0;
};

/// What blocks write is read from L2 only, so that a look at a flag needs no fence behind it.
///
/// Blocks tell each other how many records they have done: each has a flag, and looks at all others.
class ChainFlags {
 public:
  __device__ explicit ChainFlags(unsigned* flags) : flags_(flags) {
    if (threadIdx.x < gridDim.x) done_ = load(flags + blockIdx.x);
  }
  /// All blocks have come here.
  __device__ __forceinline__ void wait_for_all() {
    sync_chain();
    ++done_;
    if (threadIdx.x == 0) {
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flags_ + blockIdx.x), "r"(done_) : "memory");
    }
    if (threadIdx.x < gridDim.x) {
      while (static_cast<int>(load(flags_ + threadIdx.x) - done_) < 0) {
      }
    }
    sync_chain();
  }

 private:
  static __device__ __forceinline__ unsigned load(const unsigned* flag) {
    unsigned value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
  }

  unsigned* flags_;
  unsigned done_ = 0;  // what this block's flag says; of threads that look at flags
};

/// Brings bytes into L2, a block this line of 128, another the next.
__device__ __forceinline__ void bring_near(const void* data, int64_t bytes) {
  if (data == nullptr) return;
#pragma unroll 1
  for (int64_t at = 128 * (int64_t{threadIdx.x} * gridDim.x + blockIdx.x); at < bytes;
       at += int64_t{128} * chain_threads * gridDim.x) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const std::byte*>(data) + at));
  }
}

}  // namespace quern::cuda
