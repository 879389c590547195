#include "model/norm.h"

#include "ops/elementwise.h"
#include "ops/layer_norm.h"
#include "ops/rms_norm.h"

namespace quern {

Result<Norm> Norm::load(const std::string& name, int dim, const NormSpec& spec, Weights& weights) {
  Norm norm;
  if (name.empty()) return norm;
  norm.kind_ = spec.kind;
  norm.eps_ = spec.eps;
  ASSIGN_OR_RETURN(norm.weight_, weights.vector(name + ".weight", dim, spec.offset));
  if (spec.bias) {
    ASSIGN_OR_RETURN(norm.bias_, weights.vector(name + ".bias", dim, 0.0F));
  }
  return norm;
}

Tensor Norm::of(Exec& exec, Tensor x) const {
  if (!weight_) return to_activations(exec, x);
  if (kind_ == NormKind::layer) return layer_norm(exec, x, weight_, bias_, eps_);
  return rms_norm(exec, x, weight_, eps_);
}

void Norm::apply(Exec& exec, Tensor x) const {
  if (kind_ == NormKind::layer) return layer_norm_into(exec, x, x, weight_, bias_, eps_);
  rms_norm_into(exec, x, x, weight_, eps_);
}

}  // namespace quern
