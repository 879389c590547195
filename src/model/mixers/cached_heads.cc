#include "model/mixers/cached_heads.h"

namespace quern {

Status CachedHeads::load(const std::string& prefix, Weights& weights) {
  ASSIGN_OR_RETURN(k_scale_, scale(prefix, "k", weights));
  ASSIGN_OR_RETURN(v_scale_, scale(prefix, "v", weights));
  return {};
}

PagedKv CachedHeads::pages(const KvCache& cache) const {
  PagedKv kv = cache.layer(layer_);
  kv.heads = kv_heads_;
  kv.head_dim = head_dim_;
  if (cache.dtype == Dtype::f8) {
    kv.k_scale = k_scale_;
    kv.v_scale = v_scale_;
  }
  return kv;
}

/// Where a file keeps the scales of cached keys ("k") or values ("v"), if it does.
Result<Tensor> CachedHeads::scale(const std::string& prefix, const std::string& what, Weights& weights) const {
  for (const std::string& name :
       {what + "_scale", what + "_proj." + what + "_scale", "attn." + what + "_scale", "qkv_proj." + what + "_scale",
        what + "_proj.output_scale", std::string("kv_scale")}) {
    if (weights.has(prefix + name)) return weights.spread(prefix + name, kv_heads_);
  }
  return Tensor{};
}

}  // namespace quern
