// Multi-head latent attention. A token is cached as its normalized latent and one rotated key; the matrices that make
// keys and values of heads from latents are applied to queries and results instead, so that attention reads latents.
#include <string>
#include <vector>

#include "model/block.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace quern {
namespace {

constexpr float rank_norm_eps = 1e-6F;  // of the norms of latents, whatever the other norms have

/// Dims [first, first + count) of every head of [tokens, heads * head_dim].
Tensor part_of_heads(Tensor x, int head_dim, int first, int count) {
  Tensor part = heads_of(x, head_dim);
  part.data += int64_t{first} * dtype_bytes(part.dtype);
  part.dims[2] = count;
  return part;
}

class Mla final : public Block {
 public:
  Mla(const MlaSpec& spec, const BlockPlace& place)
      : spec_(spec), layer_(place.layer), rope_(place.rope), params_{.heads = spec.heads, .scale = spec.scale} {}

  Status load(const BlockPlace& place, Weights& weights) {
    const std::string prefix = place.prefix + "self_attn.";
    const int q_size = spec_.heads * query_dim();
    if (spec_.q_rank > 0) {
      ASSIGN_OR_RETURN(q_down_, weights.matrix({{prefix + "q_a_proj", spec_.q_rank}}, place.dim, spec_.bias));
      ASSIGN_OR_RETURN(q_norm_, weights.vector(prefix + "q_a_layernorm.weight", spec_.q_rank, place.norm.offset));
      ASSIGN_OR_RETURN(q_up_, weights.matrix({{prefix + "q_b_proj", q_size}}, spec_.q_rank, false));
    } else {
      ASSIGN_OR_RETURN(q_up_, weights.matrix({{prefix + "q_proj", q_size}}, place.dim, false));
    }
    ASSIGN_OR_RETURN(kv_down_,
                     weights.matrix({{prefix + "kv_a_proj_with_mqa", spec_.cached_dim()}}, place.dim, spec_.bias));
    ASSIGN_OR_RETURN(kv_norm_, weights.vector(prefix + "kv_a_layernorm.weight", spec_.kv_rank, place.norm.offset));
    for (int head = 0; head < spec_.heads; ++head) TRY(load_head(prefix, head, weights));
    ASSIGN_OR_RETURN(output_,
                     weights.matrix({{prefix + "o_proj", place.dim}}, spec_.heads * spec_.value_dim, spec_.bias));
    return {};
  }

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    PagedKv kv = step.kv.layer(layer_);
    kv.heads = 1;
    kv.head_dim = spec_.cached_dim();
    kv.latent_dim = spec_.kv_rank;
    const Tensor table = step.ropes[rope_];
    const Tensor latent = linear(exec, x, kv_down_);
    rms_norm_heads(exec, latent.columns(0, spec_.kv_rank), kv_norm_, rank_norm_eps);
    rope(exec, latent.columns(spec_.kv_rank, spec_.rope.dims), table, spec_.rope.dims, spec_.rope.interleaved);
    write_kv(exec, latent, {}, kv, step.inputs.segments);
    const Tensor mixed = attention(exec, queries(exec, x, table), kv, step.inputs.segments, params_);
    const Tensor values = exec.arena.tensor(exec.activations, x.dims[0], spec_.heads * spec_.value_dim);
    for (int head = 0; head < spec_.heads; ++head) {
      linear_into(exec, values.columns(head * spec_.value_dim, spec_.value_dim),
                  mixed.columns(head * spec_.kv_rank, spec_.kv_rank), head_values_[static_cast<size_t>(head)], false);
    }
    linear_into(exec, y, values, output_, accumulate);
  }

 private:
  int query_dim() const { return spec_.plain_dim + spec_.rope.dims; }

  /// Queries of latents, then of rotated keys.   result: [tokens, heads * cached_dim]
  Tensor queries(Exec& exec, Tensor x, Tensor table) const {
    const int rotated_dim = spec_.rope.dims;
    Tensor from = x;
    if (spec_.q_rank > 0) {
      from = linear(exec, x, q_down_);
      rms_norm_heads(exec, from, q_norm_, rank_norm_eps);
    }
    const Tensor q = linear(exec, from, q_up_);
    const Tensor rotated = exec.arena.tensor(exec.activations, x.dims[0], spec_.heads * rotated_dim);
    copy_heads(exec, heads_of(rotated, rotated_dim), part_of_heads(q, query_dim(), spec_.plain_dim, rotated_dim));
    rope(exec, rotated, table, rotated_dim, spec_.rope.interleaved);

    const int dim = spec_.cached_dim();
    const Tensor result = exec.arena.tensor(exec.activations, x.dims[0], spec_.heads * dim);
    for (int head = 0; head < spec_.heads; ++head) {
      linear_into(exec, result.columns(head * dim, spec_.kv_rank), q.columns(head * query_dim(), spec_.plain_dim),
                  head_keys_[static_cast<size_t>(head)], false);
    }
    copy_heads(exec, part_of_heads(result, dim, spec_.kv_rank, rotated_dim), heads_of(rotated, rotated_dim));
    return result;
  }

  /// Files of Hugging Face keep keys and values of a head one above the other; GGUF files have two stacks, in which
  /// keys are transposed already.
  Status load_head(const std::string& prefix, int head, Weights& weights) {
    const int rows = spec_.plain_dim + spec_.value_dim;  // of a head in kv_b_proj
    WeightSlice keys{.name = prefix + "kv_b_proj.weight", .shape = {int64_t{spec_.heads} * rows, spec_.kv_rank}};
    WeightSlice values = keys;
    keys.first_row = int64_t{head} * rows;
    keys.transposed = true;
    values.first_row = keys.first_row + spec_.plain_dim;
    if (weights.has(prefix + "k_b_proj.weight")) {
      keys = {.name = prefix + "k_b_proj.weight", .shape = {spec_.heads, spec_.kv_rank, spec_.plain_dim}};
      keys.first_row = int64_t{head} * spec_.kv_rank;
      values = {.name = prefix + "v_b_proj.weight", .shape = {spec_.heads, spec_.value_dim, spec_.kv_rank}};
      values.first_row = int64_t{head} * spec_.value_dim;
    }
    keys.rows = spec_.kv_rank;
    keys.cols = spec_.plain_dim;
    values.rows = spec_.value_dim;
    values.cols = spec_.kv_rank;
    ASSIGN_OR_RETURN(Matrix of_keys, weights.matrix_of({&keys, 1}));
    ASSIGN_OR_RETURN(Matrix of_values, weights.matrix_of({&values, 1}));
    head_keys_.push_back(of_keys);
    head_values_.push_back(of_values);
    return {};
  }

  MlaSpec spec_;
  int layer_;
  int rope_;
  AttentionParams params_;
  Matrix q_down_;  // none without a query rank
  Tensor q_norm_;
  Matrix q_up_;
  Matrix kv_down_;
  Tensor kv_norm_;
  std::vector<Matrix> head_keys_;    // [rank, plain_dim]: queries to queries of latents
  std::vector<Matrix> head_values_;  // [value_dim, rank]: latents to values
  Matrix output_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const MlaSpec& spec, const BlockPlace& place, Weights& weights) {
  auto block = std::make_unique<Mla>(spec, place);
  TRY(block->load(place, weights));
  return std::unique_ptr<Block>(std::move(block));
}

}  // namespace quern
