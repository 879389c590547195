// Norm: one place where a model normalises, or does not.
#pragma once

#include <string>

#include "base/result.h"
#include "model/spec.h"
#include "model/weights.h"
#include "ops/exec.h"
#include "tensor/tensor.h"

namespace quern {

class Norm {
 public:
  /// Without a name it is none, and hands on what it gets.
  static Result<Norm> load(const std::string& name, int dim, const NormSpec& spec, Weights& weights);

  explicit operator bool() const { return static_cast<bool>(weight_); }
  /// x: [tokens, dim] f32   result: the same, activations
  Tensor of(Exec& exec, Tensor x) const;
  /// In place.
  void apply(Exec& exec, Tensor x) const;

 private:
  NormKind kind_ = NormKind::rms;
  float eps_ = 0.0F;
  Tensor weight_;
  Tensor bias_;
};

}  // namespace quern
