// ExpertFiles: the matrices of experts, in whichever way files keep them.
#pragma once

#include <string>

#include "base/result.h"
#include "model/spec.h"
#include "model/weights.h"
#include "ops/linear.h"

namespace quern {

class ExpertFiles {
 public:
  /// `prefix` is that of the layer's tensors. A file is asked for what it has of the known spellings.
  ExpertFiles(const MoeSpec& spec, int dim, const std::string& prefix, Weights& weights);

  Result<Matrix> router() const;
  /// What is added to scores where experts are chosen.
  Result<Tensor> choice_bias() const;
  Result<Matrix> gate_up(int expert) const;
  Result<Matrix> down(int expert) const;
  /// The feed-forward part beside the experts.
  Result<Matrix> shared_gate_up() const;
  Result<Matrix> shared_down() const;
  Result<Matrix> shared_gate() const;

 private:
  Result<Matrix> stacked_gate_up(int expert) const;
  Result<Tensor> gate_up_bias(int expert) const;
  Result<Tensor> down_bias(int expert) const;
  /// Rows of matrix `expert` of a stack of experts.
  WeightSlice part_of(const std::string& name, int expert, int rows, int cols) const;
  /// The same of the two halves of a stack, one above the other or alternating.
  Result<Matrix> halves_of(const std::string& name, int expert) const;
  std::string shared_prefix() const;

  const MoeSpec& spec_;
  int dim_;
  Weights& weights_;
  std::string block_;    // "model.layers.3.mlp."
  std::string router_;   // name without ".weight"
  std::string experts_;  // "model.layers.3.mlp.experts."
};

}  // namespace quern
