// CachedHeads: keys and values of one layer of attention, as its pages keep them.
#pragma once

#include <string>

#include "base/result.h"
#include "model/step.h"
#include "model/weights.h"
#include "tensor/tensor.h"

namespace quern {

class CachedHeads {
 public:
  CachedHeads(int layer, int kv_heads, int head_dim) : layer_(layer), kv_heads_(kv_heads), head_dim_(head_dim) {}

  /// What a file has of scales of cached keys and values. `prefix` is that of the layer's attention.
  Status load(const std::string& prefix, Weights& weights);
  PagedKv pages(const KvCache& cache) const;

 private:
  Result<Tensor> scale(const std::string& prefix, const std::string& what, Weights& weights) const;

  int layer_;
  int kv_heads_;
  int head_dim_;
  Tensor k_scale_;  // [kv heads] f32 of keys cached as 8-bit floats, or none
  Tensor v_scale_;
};

}  // namespace quern
