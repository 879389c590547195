// The matrix instructions of a whole warpgroup (sm_90a): 64 rows by 8 to 256 columns, added up in floats, with operands
// in shared memory; and the barriers and copies that go with them.
#pragma once

#include "backend/cuda/attention_tile.cuh"
#include "backend/cuda/barriers.cuh"

namespace quern::cuda {

#ifdef __CUDACC__
/// What matrix instructions are told of an operand in shared memory: rows of 128 bytes, the eight chunks of row r
/// swapped by r % 8. `panel_bytes`: from one panel of 64 columns to the next, for transposed operands. Adding to its
/// low half moves the address by as many chunks.
__device__ __forceinline__ unsigned describe(unsigned address, unsigned panel_bytes) {
  return panel_bytes / 16 << 16 | (address & 0x3FFFF) / 16;
}
__device__ __forceinline__ uint64_t described(unsigned low) {
  constexpr unsigned swapped_rows = 1U << 30;
  constexpr unsigned group_bytes = 1024;
  uint64_t both;
  asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "r"(low), "r"(swapped_rows | group_bytes / 16));
  return both;
}
/// One thread of a warp, the same one each time.
__device__ __forceinline__ bool elected() {
  unsigned yes;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(yes));
  return yes != 0;
}
/// The same value, known to be of the whole warp, so that the units for such values compute with it.
__device__ __forceinline__ int of_warp(int value) { return __shfl_sync(all_lanes, value, 0); }

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until all but the newest `open` groups of products are done.
template <int open>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(open) : "memory");
}

// clang-format off
#define QUERN_SUMS_4 "{%0, %1, %2, %3}"
#define QUERN_ADDED_4 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
#define QUERN_SUMS_8 "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define QUERN_ADDED_8 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
#define QUERN_SUMS_16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define QUERN_ADDED_16 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15])
#define QUERN_SUMS_32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define QUERN_ADDED_32 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
#define QUERN_SUMS_64 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define QUERN_ADDED_64 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
#define QUERN_SUMS_128 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"
#define QUERN_ADDED_128 "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63]), "+f"(c[64]), "+f"(c[65]), "+f"(c[66]), "+f"(c[67]), "+f"(c[68]), "+f"(c[69]), "+f"(c[70]), "+f"(c[71]), "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]), "+f"(c[78]), "+f"(c[79]), "+f"(c[80]), "+f"(c[81]), "+f"(c[82]), "+f"(c[83]), "+f"(c[84]), "+f"(c[85]), "+f"(c[86]), "+f"(c[87]), "+f"(c[88]), "+f"(c[89]), "+f"(c[90]), "+f"(c[91]), "+f"(c[92]), "+f"(c[93]), "+f"(c[94]), "+f"(c[95]), "+f"(c[96]), "+f"(c[97]), "+f"(c[98]), "+f"(c[99]), "+f"(c[100]), "+f"(c[101]), "+f"(c[102]), "+f"(c[103]), "+f"(c[104]), "+f"(c[105]), "+f"(c[106]), "+f"(c[107]), "+f"(c[108]), "+f"(c[109]), "+f"(c[110]), "+f"(c[111]), "+f"(c[112]), "+f"(c[113]), "+f"(c[114]), "+f"(c[115]), "+f"(c[116]), "+f"(c[117]), "+f"(c[118]), "+f"(c[119]), "+f"(c[120]), "+f"(c[121]), "+f"(c[122]), "+f"(c[123]), "+f"(c[124]), "+f"(c[125]), "+f"(c[126]), "+f"(c[127])
#define QUERN_PRODUCT(columns, count, deep, type, transposed, a_at, b_at, add_at) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" add_at ", 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n" columns "k" deep ".f32." type "." type " " QUERN_SUMS_##count ", %" a_at ", %" b_at ", p, 1, 1" transposed ";\n}\n" \
        : QUERN_ADDED_##count : "l"(a), "l"(b), "r"(add))
#define QUERN_WEIGH(columns, count, type, a0, a1, a2, a3, b_at, add_at) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" add_at ", 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " " QUERN_SUMS_##count ", {%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" b_at ", p, 1, 1, 1;\n}\n" \
        : QUERN_ADDED_##count : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
// clang-format on

/// c = a b (+ c): a [64, k] and b [columns, k], both in shared memory by rows, k values of 32 bytes.
template <typename T, int columns>
__device__ __forceinline__ void warpgroup_product(float (&c)[columns / 2], uint64_t a, uint64_t b, int add) {
  static_assert(columns == 8 || columns == 16 || columns == 32 || columns == 64 || columns == 128 || columns == 256);
#define QUERN_PRODUCTS(columns, count, a_at, b_at, add_at)                    \
  if constexpr (std::is_same_v<T, E4m3>)                                      \
    QUERN_PRODUCT(columns, count, "32", "e4m3", "", a_at, b_at, add_at);      \
  else if constexpr (std::is_same_v<T, Half>)                                 \
    QUERN_PRODUCT(columns, count, "16", "f16", ", 0, 0", a_at, b_at, add_at); \
  else                                                                        \
    QUERN_PRODUCT(columns, count, "16", "bf16", ", 0, 0", a_at, b_at, add_at)
  if constexpr (columns == 8) {
    QUERN_PRODUCTS("8", 4, "4", "5", "6");
  } else if constexpr (columns == 16) {
    QUERN_PRODUCTS("16", 8, "8", "9", "10");
  } else if constexpr (columns == 32) {
    QUERN_PRODUCTS("32", 16, "16", "17", "18");
  } else if constexpr (columns == 64) {
    QUERN_PRODUCTS("64", 32, "32", "33", "34");
  } else if constexpr (columns == 128) {
    QUERN_PRODUCTS("128", 64, "64", "65", "66");
  } else {
    QUERN_PRODUCTS("256", 128, "128", "129", "130");
  }
#undef QUERN_PRODUCTS
}

/// c = a b (+ c): a [64, 16] in registers, b [16, columns] in shared memory by rows of 64 columns.
template <typename T, int columns>
__device__ __forceinline__ void warpgroup_weigh(float (&c)[columns / 2], const unsigned (&a)[4], uint64_t b, int add) {
  static_assert(columns == 64 || columns == 128);
  if constexpr (columns == 64) {
    if constexpr (std::is_same_v<T, Half>) {
      QUERN_WEIGH("64", 32, "f16", "32", "33", "34", "35", "36", "37");
    } else {
      QUERN_WEIGH("64", 32, "bf16", "32", "33", "34", "35", "36", "37");
    }
  } else {
    if constexpr (std::is_same_v<T, Half>) {
      QUERN_WEIGH("128", 64, "f16", "64", "65", "66", "67", "68", "69");
    } else {
      QUERN_WEIGH("128", 64, "bf16", "64", "65", "66", "67", "68", "69");
    }
  }
}
#undef QUERN_PRODUCT
#undef QUERN_WEIGH
#undef QUERN_SUMS_128
#undef QUERN_ADDED_128
#undef QUERN_SUMS_64
#undef QUERN_ADDED_64
#undef QUERN_SUMS_32
#undef QUERN_ADDED_32
#undef QUERN_SUMS_16
#undef QUERN_ADDED_16
#undef QUERN_SUMS_8
#undef QUERN_ADDED_8
#undef QUERN_SUMS_4
#undef QUERN_ADDED_4

/// What this thread stored in shared memory is seen by matrix instructions and background copies after a barrier.
__device__ __forceinline__ void show_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void arrive_threads(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
#endif

}  // namespace quern::cuda
