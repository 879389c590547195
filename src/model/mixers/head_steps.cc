#include "model/mixers/head_steps.h"

#include <string>

#include "ops/grow_queries.h"
#include "ops/layer_norm.h"
#include "ops/rms_norm.h"

namespace quern {
namespace {

/// Root-mean-square norms over all of q and all of k.
class WholeNorm final : public HeadStep {
 public:
  WholeNorm(Tensor q, Tensor k, float eps) : q_(q), k_(k), eps_(eps) {}

  void run(Step& step, const Heads& heads) const override {
    rms_norm_heads(step.exec, heads.q, q_, eps_);
    rms_norm_heads(step.exec, heads.k, k_, eps_);
  }

 private:
  Tensor q_, k_;
  float eps_;
};

/// Norms of every head that take the mean off, each with weights of its own.
class LayerNormOfHeads final : public HeadStep {
 public:
  LayerNormOfHeads(Tensor q, Tensor k, float eps) : q_(q), k_(k), eps_(eps) {}

  void run(Step& step, const Heads& heads) const override {
    layer_norm_heads(step.exec, heads.q, q_, eps_);
    layer_norm_heads(step.exec, heads.k, k_, eps_);
  }

 private:
  Tensor q_, k_;
  float eps_;
};

class ValueNorm final : public HeadStep {
 public:
  ValueNorm(Tensor ones, float eps) : ones_(ones), eps_(eps) {}

  void run(Step& step, const Heads& heads) const override { rms_norm_heads(step.exec, heads.v, ones_, eps_); }

 private:
  Tensor ones_;  // [head_dim]
  float eps_;
};

class GrowingQueries final : public HeadStep {
 public:
  explicit GrowingQueries(const QueryGrowth& growth) : growth_(growth) {}

  void run(Step& step, const Heads& heads) const override {
    grow_queries(step.exec, heads.q, step.inputs.segments.positions, growth_.beta, growth_.period);
  }

 private:
  QueryGrowth growth_;
};

/// [heads, head_dim]
Result<Tensor> weights_of_heads(const std::string& name, int heads, int head_dim, Weights& weights) {
  ASSIGN_OR_RETURN(const Tensor all, weights.spread(name, heads * head_dim));
  return Tensor::dense(all.data, all.dtype, heads, head_dim);
}

}  // namespace

Result<HeadSteps> load_head_steps(const AttentionSpec& spec, const BlockPlace& place, Weights& weights) {
  const std::string q_norm = place.prefix + "self_attn.q_norm.weight";
  const std::string k_norm = place.prefix + "self_attn.k_norm.weight";
  HeadSteps steps;
  if (spec.whole_qk_norm) {
    ASSIGN_OR_RETURN(const Tensor q, weights.vector(q_norm, spec.heads * spec.head_dim, place.norm.offset));
    ASSIGN_OR_RETURN(const Tensor k, weights.vector(k_norm, spec.kv_heads * spec.head_dim, place.norm.offset));
    steps.push_back(std::make_unique<WholeNorm>(q, k, place.norm.eps));
  }
  if (spec.qk_layer_norm) {
    ASSIGN_OR_RETURN(const Tensor q, weights_of_heads(q_norm, spec.heads, spec.head_dim, weights));
    ASSIGN_OR_RETURN(const Tensor k, weights_of_heads(k_norm, spec.kv_heads, spec.head_dim, weights));
    steps.push_back(std::make_unique<LayerNormOfHeads>(q, k, place.norm.eps));
  }
  if (spec.value_norm) {
    const std::vector<float> ones(static_cast<size_t>(spec.head_dim), 1.0F);
    steps.push_back(std::make_unique<ValueNorm>(weights.constants(ones), place.norm.eps));
  }
  if (spec.query_growth.beta != 0.0F) steps.push_back(std::make_unique<GrowingQueries>(spec.query_growth));
  return steps;
}

}  // namespace quern
