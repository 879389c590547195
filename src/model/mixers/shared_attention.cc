// Attention of a layer that has queries only: keys and values are those that an earlier layer keeps.
#include <fmt/format.h>

#include "model/block.h"
#include "model/mixers/cached_heads.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace quern {
namespace {

class SharedAttention final : public Block {
 public:
  SharedAttention(const SharedAttentionSpec& spec, const BlockPlace& place)
      : size_(spec.heads * spec.head_dim),
        rope_(spec.rope.dims > 0 ? place.rope : -1),
        interleaved_(spec.rope.interleaved),
        norm_eps_(place.norm.eps),
        head_dim_(spec.head_dim),
        params_{.heads = spec.heads, .scale = spec.scale, .window = spec.window},
        cached_(spec.layer, spec.kv_heads, spec.head_dim) {}

  Status load(const SharedAttentionSpec& spec, const BlockPlace& place, Weights& weights) {
    const std::string prefix = place.prefix + "self_attn.";
    ASSIGN_OR_RETURN(queries_, weights.matrix({{prefix + "q_proj", size_}}, place.dim, spec.bias));
    ASSIGN_OR_RETURN(output_, weights.matrix({{prefix + "o_proj", place.dim}}, size_, spec.bias));
    ASSIGN_OR_RETURN(norm_, weights.vector(prefix + "q_norm.weight", head_dim_, place.norm.offset));
    // Files may have keys and values that were never trained.
    for (const char* part : {"k_proj.", "v_proj.", "k_norm.", "v_norm."}) weights.leave(prefix + part);
    return cached_.load(fmt::format("model.layers.{}.self_attn.", spec.layer), weights);
  }

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    const Tensor q = linear(exec, x, queries_);
    rms_norm_heads(exec, q, norm_, norm_eps_);
    if (rope_ >= 0) rope(exec, q, step.ropes[rope_], head_dim_, interleaved_);
    const Tensor values = attention(exec, q, cached_.pages(step.kv), step.inputs.segments, params_);
    linear_into(exec, y, values, output_, accumulate);
  }

 private:
  int size_;  // of all queries of a token
  int rope_;
  bool interleaved_;
  float norm_eps_;
  int head_dim_;
  AttentionParams params_;
  CachedHeads cached_;
  Matrix queries_;
  Matrix output_;
  Tensor norm_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const SharedAttentionSpec& spec, const BlockPlace& place, Weights& weights) {
  auto block = std::make_unique<SharedAttention>(spec, place);
  TRY(block->load(spec, place, weights));
  return std::unique_ptr<Block>(std::move(block));
}

}  // namespace quern
