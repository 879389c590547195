// attention: causal attention of new tokens over paged keys and values, and the writing of those pages.
#pragma once

#include <cstdint>

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// Keys and values of one layer in the pages of its group. A page is one extent: layer, K|V, kv head, token, dim. The
/// order within a head's [token, dim] block is the device's own: on the CPU K is dim, token, as a score kernel there
/// reads one dimension of sixteen keys at a time; for a GPU see backend/cuda/attention_pages.cuh.
struct PagedKv {
  std::byte* pool = nullptr;  // page p begins at pool + p * page_bytes
  int64_t page_bytes = 0;
  int64_t layer_offset = 0;  // of this layer inside a page; K first, V right after it
  Tensor table;              // [rows, pages] i32: page of token t of a row is table[row][t / page_tokens]
  int32_t page_tokens = 16;  // a multiple of 16
  int32_t heads = 0;         // kv heads
  int32_t head_dim = 0;
  int32_t latent_dim = 0;    // > 0: no values are kept, they are the first so many dims of the keys
  Dtype dtype = Dtype::f16;  // or f32, f8; on a GPU also bf16
  Tensor k_scale;            // [heads] f32, of f8: what stored keys are multiplied with; or none
  Tensor v_scale;            // the same of values

  int32_t value_dim() const { return latent_dim > 0 ? latent_dim : head_dim; }
};

/// The sequences of one step. Token i of segment s is query token starts[s] + i, at position positions[starts[s] + i];
/// positions of a segment ascend. On a GPU a step may be padded: tokens at position -1 are nobody's, their keys and
/// values are not kept and their attention is zeros. Segments, tables and the keys of earlier steps are there before
/// the step's first kernel begins: a GPU reads them while the kernels in front of attention still run.
struct Segments {
  Tensor starts;     // [segments + 1] i32: first query token of each segment
  Tensor rows;       // [segments] i32: row in the page table
  Tensor positions;  // [tokens] i32
};

struct AttentionParams {
  int32_t heads = 0;  // query heads; grouped over the kv heads
  float scale = 1.0F;
  float softcap = 0.0F;  // 0: none; else scores become softcap * tanh(score / softcap)
  int32_t window = 0;    // 0: all earlier tokens; else a query sees the keys j with position - window < j <= position
  bool causal = true;    // false: also later ones, up to the segment's last position and j < position + window
  Tensor sinks = {};     // [heads] f32: the score of one more key of each head, which has no value; or none
};

inline constexpr int32_t max_head_dim = 576;

/// Stores keys and values of the step's tokens in their pages.   k, v: [tokens, kv heads * head_dim] activations; no v
/// where values are part of keys
void write_kv(Exec& exec, Tensor k, Tensor v, const PagedKv& kv, const Segments& segments);

/// out[t] = softmax(scale * q[t] K^T) V over the pages; keys of the step are already written. Pages outside the windows
/// of all its tokens are not touched. A result depends on its own query, position and keys only, to the bit: keys are
/// summed in blocks and splits that begin at fixed positions, whatever else is in the step and however many threads
/// there are (on a GPU: with a batch-invariant queue).   q: [tokens, heads * head_dim] activations
/// out: [tokens, heads * value_dim] activations
Tensor attention(Exec& exec, Tensor q, const PagedKv& kv, const Segments& segments, const AttentionParams& params);

namespace kernels {
inline constinit Kernel<void(Tensor k, Tensor v, const PagedKv& kv, const Segments& segments)> write_kv{"write_kv"};
inline constinit Kernel<void(Tensor out, Tensor q, const PagedKv& kv, const Segments& segments,
                             const AttentionParams& params, std::byte* scratch)>
    attention{"attention"};
/// How much scratch that takes: no more than a bound, however many tokens there are and however long the rows.
inline constinit Kernel<void(Tensor q, const PagedKv& kv, const Segments& segments, const AttentionParams& params,
                             int64_t& bytes)>
    attention_scratch{"attention_scratch"};
}  // namespace kernels

}  // namespace quern
