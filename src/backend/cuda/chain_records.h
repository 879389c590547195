// What one kernel does in a row (chain.h): records of operations of one token, as they are handed to the GPU. What many
// records share is a shape.
#pragma once

#include <cstdint>

#include "backend/cuda/attention_pages.cuh"
#include "backend/cuda/linear_stream.h"
#include "backend/cuda/packed.cuh"
#include "ops/gated.h"

namespace quern::cuda {

inline constexpr int chain_warps = 16;
inline constexpr int chain_threads = 32 * chain_warps;
inline constexpr int chain_slots = 8;  // of each warp's ring, at most
/// Of a slot: two records of 4-bit levels and their headers, one of 8-bit levels, 2 KB of a row.
inline constexpr int chain_slot_bytes = 2432;
inline constexpr int chain_row_piece = 2048;
/// Query heads of one kv head that a block takes together.
inline constexpr int chain_queries = 4;
inline constexpr int chain_pages = 256;      // whose numbers a block keeps
inline constexpr int chain_lines = 1000000;  // of a product, at most

/// Where a product's activations come from.
enum class ChainSource : uint8_t { plain, norm, gated };

/// y = scale * (W x) + bias, or y += that. A line is a row of a format in rows, else a panel of 16 rows; pieces of it
/// are what a slot of the ring holds.
struct ChainProduct {
  int32_t rows[3];       // of each part
  int32_t lines_end[3];  // lines of the parts up to this one
  int32_t first_row[3];
  int32_t parts;
  int32_t cols;
  int32_t line_bytes;
  int32_t lead_bytes;    // of headers, before a panel's records; -1: a line is a row
  int32_t piece_bytes;   // all but the last
  int32_t pieces;        // of a line
  int32_t header_bytes;  // that a piece needs beside its records
  int32_t pieces_of_header;
  float eps;  // of norm
  FormatId format;
  ChainSource source;
  Activation activation;  // of gated
  Dtype result;           // f32 or the activations
  bool accumulate;

  bool operator==(const ChainProduct&) const = default;
};

/// rope_and_write_kv and attention.
struct ChainAttention {
  Pages pages;  // but layer and scales
  Sight sight;
  const int* row;
  const int* position;
  const float* table;  // cosines, then sines
  float* partials;     // [tasks, splits, chain_queries, head_dim + 2]
  int32_t page_shift;  // a page has so many tokens, as a power of two
  int32_t pairs;
  int32_t group;
  int32_t tasks_of_head;  // a task has up to chain_queries of the group
  float norm_eps;
  bool interleaved;
  bool f8;

  bool operator==(const ChainAttention&) const = default;
};

enum class ChainKind : uint8_t { product, attention, select };

struct ChainProductData {
  const std::byte* data[3];
  const void* x;
  const float* norm;
  void* normed;  // what norm makes of x is also written here
  void* y;
  const float* scale;  // of each row, or null
  const float* bias;   // or null
};
struct ChainAttentionData {
  std::byte* layer;
  const float* k_scale;  // or null
  const float* v_scale;
  const void* q;
  const void* k;
  const void* v;
  const float* q_norm;  // or null
  const float* k_norm;
  const float* sinks;  // or null
  void* out;
};
/// y = x: a row of words.
struct ChainSelectData {
  const uint32_t* x;
  uint32_t* y;
  int64_t words;
};

struct ChainRecord {
  ChainKind kind;
  uint8_t shape;
  bool waits;  // for what all blocks did before
  union {
    ChainProductData product;
    ChainAttentionData attention;
    ChainSelectData select;
  };
};

inline constexpr int chain_products = 16;
inline constexpr int chain_attentions = 4;

/// Kernels take 32,764 bytes.
struct alignas(16) ChainProgram {
  static constexpr int most_records = 336;

  int32_t records;
  int32_t slots;  // of each warp's ring
  int32_t slot_bytes;
  int32_t x_at;  // in shared memory
  int32_t ring_at;
  unsigned* flags;     // of each block
  unsigned* arrivals;  // of each task, zero before and after
  ChainProduct product[chain_products];
  ChainAttention attention[chain_attentions];
  ChainRecord record[most_records];

  constexpr int bytes() const {
    return static_cast<int>(sizeof(ChainProgram) - sizeof(ChainRecord) * static_cast<size_t>(most_records - records));
  }
};
static_assert(sizeof(ChainProgram) <= 32764);

/// A block's shared memory: fixed parts, the program, activations, rings.
struct ChainLayout {
  static constexpr int full_at = 0;                                          // barriers
  static constexpr int shares_at = full_at + 8 * chain_warps * chain_slots;  // lines of every warp, of every product
  static constexpr int sums_at = shares_at + 8 * chain_products * chain_warps;
  static constexpr int few_at = sums_at + 2 * chain_warps * panel_height * 4;
  static constexpr int pages_at = few_at + 512;
  static constexpr int program_at = pages_at + 4 * chain_pages;
};

/// Memory of a block while it attends; it lies where activations of products lie.
template <int dims>
struct ChainHeads {
  float raw[chain_queries + 2][dims];
  float q[chain_queries][dims];
  float weight[chain_warps][chain_queries][2];  // largest score, sum of weights
  float values[chain_warps][chain_queries][dims];
  int last;
};
constexpr int chain_heads_bytes(int dims) {
  return static_cast<int>(dims == 64    ? sizeof(ChainHeads<64>)
                          : dims == 128 ? sizeof(ChainHeads<128>)
                                        : sizeof(ChainHeads<256>));
}

void launch_chain_f16(const Queue& queue, const ChainProgram& program, int shared_bytes);
void launch_chain_bf16(const Queue& queue, const ChainProgram& program, int shared_bytes);

}  // namespace quern::cuda
