// ModelWork: what a model's steps must read and compute at least; over what the machine can do it is the least time.
#pragma once

#include "apps/instance.h"
#include "apps/measure/machine_limits.h"

namespace quern {

/// Of a step, a prompt or a whole run.
struct StepWork {
  double weight_bytes = 0.0;
  double kv_bytes = 0.0;  // keys, values and states, which are read after the arithmetic of the weights
  double flops = 0.0;     // those that go faster than the limit count less

  double bytes() const { return weight_bytes + kv_bytes; }
  StepWork times(double n) const { return {weight_bytes * n, kv_bytes * n, flops * n}; }
  /// The least time: weights or arithmetic, then the keys and values.
  double seconds(const MachineLimits& limits) const;
};

class ModelWork {
 public:
  explicit ModelWork(const Instance& instance);

  /// A step of `batch` tokens, each after `context` others.
  StepWork decode(double batch, double context) const;
  /// A prompt: one pass over the weights, its products and causal scores.
  StepWork prefill(double tokens) const;
  /// Numbers in all matrices.
  double parameters() const { return dense_ + experts_ + tables_; }

 private:
  void add(const AttentionSpec& attention, double dim) {
    dense_ += dim * attention.head_dim * (2 * attention.heads + 2 * attention.kv_heads);
    score_flops_ += 4.0 * attention.heads * attention.head_dim;
  }
  void add(const SharedAttentionSpec& attention, double dim) {
    dense_ += 2 * dim * attention.head_dim * attention.heads;
    score_flops_ += 4.0 * attention.heads * attention.head_dim;
  }
  void add(const MlaSpec& mla, double dim) {
    const double query = mla.heads * (mla.plain_dim + mla.rope.dims);
    dense_ += mla.q_rank > 0 ? mla.q_rank * (dim + query) : dim * query;
    dense_ += dim * mla.cached_dim() + 1.0 * mla.kv_rank * mla.heads * (mla.plain_dim + mla.value_dim);
    dense_ += dim * mla.heads * mla.value_dim;
    score_flops_ += 2.0 * mla.heads * (mla.cached_dim() + mla.kv_rank);
  }
  void add(const DeltaNetSpec& delta, double dim) {
    dense_ += dim * (delta.channels() + 2.0 * delta.values() + 2.0 * delta.value_heads);
  }
  void add(const ShortConvSpec& /*conv*/, double dim) { dense_ += 4 * dim * dim; }
  void add(const FfnSpec& gated, double dim) { dense_ += 3 * dim * gated.hidden; }
  void add(const PlainFfnSpec& plain, double dim) { dense_ += 2 * dim * plain.hidden; }
  void add(const MoeSpec& moe, double dim) {
    dense_ += dim * moe.experts + 3 * dim * moe.shared_hidden;
    experts_ += 3 * dim * moe.hidden * moe.experts;
    used_ = static_cast<double>(moe.router.used) / moe.experts;
  }
  void add(const FfnWithExpertsSpec& both, double dim) {
    add(both.ffn, dim);
    add(both.experts, dim);
  }

  // Numbers of weights: that every token meets, of all experts, of the output matrix.
  double dense_ = 0.0, experts_ = 0.0, vocabulary_ = 0.0;
  double tables_ = 0.0;                             // embeddings and output matrix
  double used_ = 1.0;                               // part of the experts that a token meets
  double weight_bytes_ = 0.0, output_bytes_ = 0.0;  // of one weight
  double kv_bytes_ = 0.0;                           // of one token
  double state_bytes_ = 0.0;                        // of one sequence, read and written in a step
  double score_flops_ = 0.0;
  double rate_ = 1.0;  // of the arithmetic, in parts of the limit's
};

}  // namespace quern
