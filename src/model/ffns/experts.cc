#include "model/ffns/experts.h"

namespace quern {

Status Experts::load(const MoeSpec& spec, const ExpertFiles& files) {
  activation_ = spec.activation;
  for (int expert = 0; expert < spec.experts; ++expert) {
    ASSIGN_OR_RETURN(Matrix gate_up, files.gate_up(expert));
    ASSIGN_OR_RETURN(Matrix down, files.down(expert));
    gate_up_.push_back(gate_up);
    down_.push_back(down);
  }
  return {};
}

void Experts::run(Exec& exec, Tensor x, const Routing& routing, Tensor y, bool accumulate) const {
  const Tensor hidden = expert_gated(exec, x, gate_up_.data(), routing, activation_, down_.data());
  combine(exec, y, expert_linear(exec, hidden, down_.data(), routing), routing, accumulate);
}

}  // namespace quern
