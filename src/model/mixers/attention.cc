// Grouped-query attention over paged keys and values.
#include "ops/attention.h"

#include <array>

#include "model/block.h"
#include "model/mixers/cached_heads.h"
#include "model/mixers/head_steps.h"
#include "ops/linear.h"
#include "ops/modulate.h"
#include "ops/rope_and_write_kv.h"

namespace quern {
namespace {

class Attention final : public Block {
 public:
  Attention(const AttentionSpec& spec, const BlockPlace& place)
      : q_size_(spec.heads * spec.head_dim),
        kv_size_(spec.kv_heads * spec.head_dim),
        head_dim_(spec.head_dim),
        rope_(spec.rope.dims > 0 ? place.rope : -1),
        interleaved_(spec.rope.interleaved),
        norm_eps_(place.norm.eps),
        params_{spec.heads, spec.scale, spec.softcap, spec.window, spec.causal},
        cached_(place.layer, spec.kv_heads, spec.head_dim) {}

  Status load(const AttentionSpec& spec, const BlockPlace& place, Weights& weights) {
    const std::string prefix = place.prefix + "self_attn.";
    TRY(load_inputs(spec, prefix, place.dim, weights));
    ASSIGN_OR_RETURN(output_, weights.matrix({{prefix + "o_proj", place.dim}}, q_size_, spec.output_bias));
    if (spec.qk_norm) {
      ASSIGN_OR_RETURN(q_norm_, weights.vector(prefix + "q_norm.weight", head_dim_, place.norm.offset));
      ASSIGN_OR_RETURN(k_norm_, weights.vector(prefix + "k_norm.weight", head_dim_, place.norm.offset));
    }
    if (spec.sinks) {
      ASSIGN_OR_RETURN(
          params_.sinks,
          weights.vector(prefix + (weights.has(prefix + "sinks") ? "sinks" : "sinks.weight"), spec.heads, 0.0F));
    }
    ASSIGN_OR_RETURN(head_steps_, load_head_steps(spec, place, weights));
    return cached_.load(prefix, weights);
  }

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    const PagedKv kv = cached_.pages(step.kv);
    const Tensor qkv = linear(exec, x, qkv_);
    const Tensor q = qkv.columns(0, q_size_);
    const Tensor k = qkv.columns(q_size_, kv_size_);
    const Tensor v = qkv.columns(q_size_ + kv_size_, kv_size_);
    for (const auto& head_step : head_steps_) head_step->run(step, {q, k, v});
    const HeadTransform transform{q_norm_, k_norm_, norm_eps_, rope_ >= 0 ? step.ropes[rope_] : Tensor{}, interleaved_};
    rope_and_write_kv(exec, q, k, v, transform, kv, step.inputs.segments);
    const Tensor values = attention(exec, q, kv, step.inputs.segments, params_);
    if (output_gate_.rows > 0) modulate(exec, values, linear(exec, x, output_gate_), Modulation::sigmoid);
    linear_into(exec, y, values, output_, accumulate);
  }

 private:
  Status load_inputs(const AttentionSpec& spec, const std::string& prefix, int dim, Weights& weights) {
    const NamedRows q{prefix + "q_proj", q_size_};
    const NamedRows k{prefix + "k_proj", kv_size_};
    const NamedRows v{prefix + (spec.values_are_keys ? "k_proj" : "v_proj"), kv_size_};
    if (!spec.output_gate) {
      ASSIGN_OR_RETURN(qkv_, weights.fused(prefix + "qkv_proj", {q, k, v}, dim, spec.qkv_bias));
      return {};
    }
    WeightSlice queries{.name = q.name + ".weight",
                        .shape = {2 * q.rows, dim},
                        .rows = q.rows,
                        .cols = dim,
                        .step = 2 * head_dim_,
                        .run = head_dim_};
    WeightSlice gates = queries;
    gates.first_row = head_dim_;
    const auto whole = [&](const NamedRows& part) {
      return WeightSlice{.name = part.name + ".weight", .shape = {part.rows, dim}, .rows = part.rows, .cols = dim};
    };
    ASSIGN_OR_RETURN(qkv_, weights.matrix_of(std::array{queries, whole(k), whole(v)}));
    ASSIGN_OR_RETURN(output_gate_, weights.matrix_of({&gates, 1}));
    return {};
  }

  int q_size_;
  int kv_size_;
  int head_dim_;
  int rope_;
  bool interleaved_;
  float norm_eps_;
  AttentionParams params_;
  CachedHeads cached_;
  Matrix qkv_;
  Matrix output_gate_;  // or none
  Matrix output_;
  HeadSteps head_steps_;
  Tensor q_norm_;
  Tensor k_norm_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const AttentionSpec& spec, const BlockPlace& place, Weights& weights) {
  auto block = std::make_unique<Attention>(spec, place);
  TRY(block->load(spec, place, weights));
  return std::unique_ptr<Block>(std::move(block));
}

}  // namespace quern
