#include "model/ffns/expert_files.h"

#include <array>
#include <initializer_list>

namespace quern {
namespace {

struct Spelling {
  const char* block;
  const char* router;
};
constexpr Spelling spellings[] = {{"mlp.", "gate"},
                                  {"mlp.", "router"},
                                  {"block_sparse_moe.", "gate"},
                                  {"block_sparse_moe.", "router.layer"},
                                  {"feed_forward.", "router"},
                                  {"", "router.proj"}};

/// The first of the names that is there, or else the first.
std::string first_of(const Weights& weights, std::initializer_list<std::string> names) {
  for (const std::string& name : names) {
    if (weights.has(name)) return name;
  }
  return *names.begin();
}

}  // namespace

ExpertFiles::ExpertFiles(const MoeSpec& spec, int dim, const std::string& prefix, Weights& weights)
    : spec_(spec), dim_(dim), weights_(weights) {
  const Spelling* found = &spellings[0];
  for (const Spelling& spelling : spellings) {
    if (!weights.has(prefix + spelling.block + spelling.router + ".weight")) continue;
    found = &spelling;
    break;
  }
  block_ = prefix + found->block;
  router_ = block_ + found->router;
  experts_ = block_ + "experts.";
}

Result<Matrix> ExpertFiles::router() const {
  return weights_.matrix({{router_, spec_.experts}}, dim_, spec_.router_bias);
}

Result<Tensor> ExpertFiles::choice_bias() const {
  const std::string name = first_of(weights_, {router_ + ".e_score_correction_bias", block_ + "e_score_correction_bias",
                                               router_ + ".e_score_correction.bias"});
  return weights_.vector(name, spec_.experts, 0.0F);
}

Result<Matrix> ExpertFiles::gate_up(int expert) const {
  const std::string own = experts_ + std::to_string(expert) + ".";
  const auto separate = [&](const char* gate, const char* up) {
    return weights_.matrix({{own + gate, spec_.hidden}, {own + up, spec_.hidden}}, dim_, spec_.bias);
  };
  if (weights_.has(own + "gate_proj.weight")) return separate("gate_proj", "up_proj");
  if (weights_.has(own + "w1.weight")) return separate("w1", "w3");
  ASSIGN_OR_RETURN(Matrix matrix, stacked_gate_up(expert));
  if (spec_.bias) {
    ASSIGN_OR_RETURN(matrix.bias, gate_up_bias(expert));
  }
  return matrix;
}

Result<Matrix> ExpertFiles::stacked_gate_up(int expert) const {
  // Quantized stacks (named ".weight", like those of one kind) are never transposed.
  for (const std::string& name : {experts_ + "gate_up_proj.weight", block_ + "input_linear.weight"}) {
    if (weights_.has(name)) return halves_of(name, expert);
  }
  const std::string both = experts_ + "gate_up_proj";
  if (!weights_.has(both)) {
    const std::array parts{part_of(experts_ + "gate_proj.weight", expert, spec_.hidden, dim_),
                           part_of(experts_ + "up_proj.weight", expert, spec_.hidden, dim_)};
    return weights_.matrix_of(parts);
  }
  if (!spec_.transposed) return halves_of(both, expert);
  WeightSlice gate{.name = both,
                   .shape = {spec_.experts, dim_, 2 * spec_.hidden},
                   .first_row = int64_t{expert} * dim_,
                   .rows = spec_.hidden,
                   .cols = dim_,
                   .step = spec_.alternating ? 2 : 1,
                   .transposed = true};
  WeightSlice up = gate;
  up.first_column = spec_.alternating ? 1 : spec_.hidden;
  return weights_.matrix_of(std::array{gate, up});
}

Result<Matrix> ExpertFiles::halves_of(const std::string& name, int expert) const {
  WeightSlice gate = part_of(name, expert, 2 * spec_.hidden, dim_);
  gate.rows = spec_.hidden;
  gate.step = spec_.alternating ? 2 : 1;
  WeightSlice up = gate;
  up.first_row += spec_.alternating ? 1 : spec_.hidden;
  return weights_.matrix_of(std::array{gate, up});
}

WeightSlice ExpertFiles::part_of(const std::string& name, int expert, int rows, int cols) const {
  return {.name = name,
          .shape = {spec_.experts, rows, cols},
          .first_row = int64_t{expert} * rows,
          .rows = rows,
          .cols = cols};
}

Result<Tensor> ExpertFiles::gate_up_bias(int expert) const {
  const std::string both = experts_ + "gate_up_proj_bias";
  VectorSlice gate{.name = both, .rows = spec_.experts, .cols = 2 * spec_.hidden, .row = expert, .size = spec_.hidden};
  gate.step = spec_.alternating ? 2 : 1;
  VectorSlice up = gate;
  up.first = spec_.alternating ? 1 : spec_.hidden;
  if (!weights_.has(both)) {
    gate = {.name = experts_ + "gate_proj.bias",
            .rows = spec_.experts,
            .cols = spec_.hidden,
            .row = expert,
            .size = spec_.hidden};
    up = gate;
    up.name = experts_ + "up_proj.bias";
  }
  return weights_.vector_slices(std::array{gate, up});
}

Result<Matrix> ExpertFiles::down(int expert) const {
  const std::string own = experts_ + std::to_string(expert) + ".";
  for (const char* name : {"down_proj", "w2"}) {
    if (weights_.has(own + name + ".weight")) return weights_.matrix({{own + name, dim_}}, spec_.hidden, spec_.bias);
  }
  const std::string name =
      first_of(weights_, {experts_ + "down_proj.weight", block_ + "output_linear.weight", experts_ + "down_proj"});
  WeightSlice part = part_of(name, expert, dim_, spec_.hidden);
  if (spec_.transposed && weights_.has(experts_ + "down_proj")) {
    part.name = experts_ + "down_proj";
    part.shape = {spec_.experts, spec_.hidden, dim_};
    part.first_row = int64_t{expert} * spec_.hidden;
    part.transposed = true;
  }
  ASSIGN_OR_RETURN(Matrix matrix, weights_.matrix_of({&part, 1}));
  if (spec_.bias) {
    ASSIGN_OR_RETURN(matrix.bias, down_bias(expert));
  }
  return matrix;
}

Result<Tensor> ExpertFiles::down_bias(int expert) const {
  const std::string name = first_of(weights_, {experts_ + "down_proj_bias", experts_ + "down_proj.bias"});
  const VectorSlice part{.name = name, .rows = spec_.experts, .cols = dim_, .row = expert, .size = dim_};
  return weights_.vector_slices({&part, 1});
}

std::string ExpertFiles::shared_prefix() const {
  for (const char* name : {"shared_experts.", "shared_expert."}) {
    if (weights_.has(block_ + name + "down_proj.weight")) return block_ + name;
  }
  return block_ + "shared_experts.";
}

Result<Matrix> ExpertFiles::shared_gate_up() const {
  const std::string prefix = shared_prefix();
  return weights_.fused(prefix + "gate_up_proj",
                        {{prefix + "gate_proj", spec_.shared_hidden}, {prefix + "up_proj", spec_.shared_hidden}}, dim_,
                        false);
}

Result<Matrix> ExpertFiles::shared_down() const {
  return weights_.matrix({{shared_prefix() + "down_proj", dim_}}, spec_.shared_hidden, false);
}

Result<Matrix> ExpertFiles::shared_gate() const {
  return weights_.matrix({{block_ + "shared_expert_gate", 1}}, dim_, false);
}

}  // namespace quern
