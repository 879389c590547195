// The shared memory of a block that does prompts on warpgroup instructions, and the barriers in it.
#pragma once

#include "backend/cuda/attention_prompt_plan.cuh"
#include "backend/cuda/warpgroup.cuh"

namespace quern::cuda {

/// What pages hold: floats of 16 bits; 8-bit floats, which come in parts and become half floats; or half floats that
/// were 8-bit floats before (attention_widen.h).
enum class Stored { floats, f8, widened };

/// How a head size is computed.
template <int head_dims, Stored stored = Stored::floats>
struct PromptShape {
  static constexpr bool f8 = stored == Stored::f8;
  static constexpr bool widened = stored == Stored::widened;
  static constexpr bool scaled = stored != Stored::floats;  // and queries may have to become half floats
  static constexpr int dims = head_dims;
  static constexpr int panels = dims / panel_dims;
  static constexpr int block = dims == 256 ? 64 : 128;  // keys of a quantum
  static constexpr int lane_keys = f8 ? 448 : 288;      // in whose time a lane begins and ends (measured)
  static constexpr int stages = 2;
  static constexpr int query_stages = dims == 256 || (f8 && dims == 128) ? 1 : 2;
  static constexpr int groups = 2;  // warpgroups that compute
  static constexpr int bringing_groups = f8 ? 2 : 1;
  static constexpr int threads = 128 * (groups + bringing_groups);
  static constexpr int sharers = f8 ? 2 : 1;  // warps that bring keys, and so many values
  static constexpr int loaders = 64;          // threads that load queries
  static constexpr int compute_registers = f8 ? 216 : 232;
  static constexpr int bring_registers = 40;

  static constexpr int query_panel_bytes = prompt_rows * 128;
  static constexpr int query_bytes = panels * query_panel_bytes;
  static constexpr int panel_bytes = block * 128;
  static constexpr int tile_bytes = panels * panel_bytes;  // of keys or values
  static constexpr int part_bytes = 4096;                  // of keys or values of 8-bit floats
  static constexpr int part_keys = part_bytes / dims;
  static constexpr int tile_parts = block / part_keys;
  static constexpr int part_stages = dims == 256 ? 1 : 3;  // of a warp
  static constexpr int alignment = 1024;
  static constexpr int header_bytes = 4096;  // barriers, briefs, what rows see
  static constexpr int tiles_at = header_bytes + query_stages * query_bytes;
  static constexpr int parts_at = tiles_at + 2 * stages * tile_bytes;
  static constexpr int shared_bytes = alignment + parts_at + (f8 ? 2 * sharers * part_stages * part_bytes : 0);

  static constexpr int slot_floats = groups * 128 * (dims / 2 + 4);
};

#ifdef __CUDACC__
/// What the computing warpgroups are told of a passage.
struct Brief {
  int any;      // else there are no more
  int quantum;  // the quanta to do
  int end_quantum;
  int first;        // keys that some row sees
  int last;         // position of the segment's last token
  int first_token;  // of the segment
  int head;         // kv head
  int first_row;    // of the segment's query rows
  int rows;         // that the segment has
  int begins;       // the lane begins here
  int first_owner;  // blocks that have a share of the lane
  int owners;
};

enum class Side { keys, values };

/// Parts of a block's shared memory, and which of them is used for the n-th time.
template <typename Shape>
struct PromptMemory {
  std::byte* header;
  unsigned base;

  __device__ explicit PromptMemory(std::byte* memory) {
    const unsigned begin = shared_address(memory);
    base = (begin + Shape::alignment - 1) / Shape::alignment * Shape::alignment;
    header = memory + (base - begin);
  }

  /// A brief is used for longer than a stage of queries.
  __device__ Brief& brief(int n) const { return reinterpret_cast<Brief*>(header + 256)[n % 4]; }
  __device__ RowSight* sights(int n) const {
    return reinterpret_cast<RowSight*>(header + 1024) + n % Shape::query_stages * prompt_rows;
  }
  __device__ int64_t* row_begins() const { return reinterpret_cast<int64_t*>(header + 3072); }

  __device__ unsigned barrier(int number) const { return base + 8 * number; }
  __device__ unsigned there(Side side, int n) const { return barrier(at(side, n)); }
  __device__ unsigned done(Side side, int n) const { return barrier(2 * Shape::stages + at(side, n)); }
  __device__ unsigned queries_there(int n) const { return barrier(4 * Shape::stages + n % Shape::query_stages); }
  __device__ unsigned queries_done(int n) const { return barrier(4 * Shape::stages + 2 + n % Shape::query_stages); }

  /// `warp`: of those that widen.
  __device__ unsigned part_there(int warp, int n) const {
    return barrier(4 * Shape::stages + 4 + warp * Shape::part_stages + n % Shape::part_stages);
  }

  __device__ unsigned queries(int n) const {
    return base + Shape::header_bytes + n % Shape::query_stages * Shape::query_bytes;
  }
  __device__ unsigned tile(Side side, int n) const { return base + Shape::tiles_at + at(side, n) * Shape::tile_bytes; }
  __device__ unsigned part(int warp, int n) const {
    return base + Shape::parts_at + (warp * Shape::part_stages + n % Shape::part_stages) * Shape::part_bytes;
  }

  /// Parity of the n-th use of a stage.
  static __device__ unsigned parity(int n, int stages) { return n / stages % 2; }

  /// One thread.
  __device__ void make_barriers() const {
    constexpr int computing_warps = 4 * Shape::groups;
    for (const Side side : {Side::keys, Side::values}) {
      for (int n = 0; n < Shape::stages; ++n) {
        make_barrier(there(side, n), Shape::sharers);
        make_barrier(done(side, n), computing_warps);
      }
    }
    for (int n = 0; n < 2 * Shape::sharers * Shape::part_stages && Shape::f8; ++n)
      make_barrier(part_there(0, 0) + 8 * n, 1);
    for (int n = 0; n < Shape::query_stages; ++n) {
      make_barrier(queries_there(n), Shape::loaders);
      make_barrier(queries_done(n), computing_warps);
    }
    show_barriers();
  }

 private:
  static __device__ int at(Side side, int n) { return static_cast<int>(side) * Shape::stages + n % Shape::stages; }
};
#endif

}  // namespace quern::cuda
