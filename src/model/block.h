// Block: a mixer or a feed-forward part of a layer. It reads its spec and the step, and branches on sizes only.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "model/spec.h"
#include "model/step.h"
#include "model/weights.h"
#include "tensor/tensor.h"

namespace quern {

class Block {
 public:
  virtual ~Block() = default;
  /// y = block(x), or y += block(x) with `accumulate`.   x, y: [tokens, dim]
  virtual void forward(Step& step, Tensor x, Tensor y, bool accumulate) const = 0;
};

/// Where a block stands in its model.
struct BlockPlace {
  std::string prefix;  // of its layer's tensors: "model.layers.3."
  int layer = 0;
  int dim = 0;
  int rope = 0;  // which of Step::ropes its layer uses
  NormSpec norm;
};

Result<std::unique_ptr<Block>> make_block(const AttentionSpec& spec, const BlockPlace& place, Weights& weights);
Result<std::unique_ptr<Block>> make_block(const SharedAttentionSpec& spec, const BlockPlace& place, Weights& weights);
Result<std::unique_ptr<Block>> make_block(const MlaSpec& spec, const BlockPlace& place, Weights& weights);
Result<std::unique_ptr<Block>> make_block(const DeltaNetSpec& spec, const BlockPlace& place, Weights& weights);
Result<std::unique_ptr<Block>> make_block(const ShortConvSpec& spec, const BlockPlace& place, Weights& weights);
Result<std::unique_ptr<Block>> make_block(const FfnSpec& spec, const BlockPlace& place, Weights& weights);
Result<std::unique_ptr<Block>> make_block(const PlainFfnSpec& spec, const BlockPlace& place, Weights& weights);
Result<std::unique_ptr<Block>> make_block(const MoeSpec& spec, const BlockPlace& place, Weights& weights);
Result<std::unique_ptr<Block>> make_block(const FfnWithExpertsSpec& spec, const BlockPlace& place, Weights& weights);
Result<std::unique_ptr<Block>> make_block(const LayerInputSpec& spec, const BlockPlace& place, Weights& weights);

}  // namespace quern
