// Gated delta net: queries, keys and values pass a short convolution, then a matrix per head remembers what they say.
#include "ops/delta_net.h"

#include <array>
#include <cmath>
#include <vector>

#include "model/block.h"
#include "ops/linear.h"
#include "ops/modulate.h"
#include "ops/rms_norm.h"
#include "ops/short_conv.h"

namespace quern {
namespace {

constexpr float length_eps = 1e-6F;  // under the root of the length of queries and keys

class DeltaNet final : public Block {
 public:
  DeltaNet(const DeltaNetSpec& spec, const BlockPlace& place)
      : spec_(spec), layer_(place.layer), norm_eps_(place.norm.eps) {}

  Status load(const BlockPlace& place, Weights& weights) {
    const std::string prefix = place.prefix + "linear_attn.";
    TRY(load_inputs(prefix, place.dim, weights));
    ASSIGN_OR_RETURN(conv_.taps, weights.transposed(prefix + "conv1d.weight", spec_.channels(), spec_.taps));
    conv_.silu = true;
    params_.key_heads = spec_.key_heads;
    params_.value_heads = spec_.value_heads;
    params_.tiled = spec_.tiled;
    params_.log_rates = !weights.has(prefix + "A");
    ASSIGN_OR_RETURN(params_.rates, weights.vector(prefix + (params_.log_rates ? "A_log" : "A"), spec_.value_heads, 0));
    const std::string bias = weights.has(prefix + "dt.bias") ? "dt.bias" : "dt_bias";
    ASSIGN_OR_RETURN(params_.time_bias, weights.vector(prefix + bias, spec_.value_heads, 0));
    ASSIGN_OR_RETURN(norm_, weights.vector(prefix + "norm.weight", spec_.value_dim, 0));
    ASSIGN_OR_RETURN(output_, weights.matrix({{prefix + "out_proj", place.dim}}, spec_.values(), false));
    // To unit length is what an RMS norm does with these weights; scores are scaled in the queries.
    const float root = 1.0F / std::sqrt(static_cast<float>(spec_.key_dim));
    const auto size = static_cast<size_t>(spec_.key_dim);
    k_norm_ = weights.constants(std::vector<float>(size, root));
    q_norm_ = weights.constants(std::vector<float>(size, root * root));
    return {};
  }

  void forward(Step& step, Tensor x, Tensor y, bool accumulate) const override {
    Exec& exec = step.exec;
    const Segments& segments = step.inputs.segments;
    RowState state = step.kv.state(layer_);
    const Tensor mixed = short_conv(exec, linear(exec, x, inputs_), conv_, state, segments);
    const Tensor q = mixed.columns(0, spec_.keys());
    const Tensor k = mixed.columns(spec_.keys(), spec_.keys());
    const Tensor v = mixed.columns(2 * spec_.keys(), spec_.values());
    rms_norm_heads(exec, q, q_norm_, length_eps / static_cast<float>(spec_.key_dim));
    rms_norm_heads(exec, k, k_norm_, length_eps / static_cast<float>(spec_.key_dim));
    const Tensor gates = exec.arena.tensor(Dtype::f32, x.dims[0], 2 * spec_.value_heads);
    linear_into(exec, gates, x, gates_, false);
    state.offset += short_conv_state_bytes(spec_.taps, spec_.channels());
    const Tensor answers = delta_net(
        exec, {q, k, v, gates.columns(0, spec_.value_heads), gates.columns(spec_.value_heads, spec_.value_heads)},
        params_, state, segments);
    rms_norm_heads(exec, answers, norm_, norm_eps_);
    modulate(exec, answers, linear(exec, x, output_gate_), Modulation::silu);
    linear_into(exec, y, answers, output_, accumulate);
  }

 private:
  /// Files keep q, k, v and z together and in groups, one for each key head, or q|k|v and z by themselves; and the same
  /// of b and a.
  Status load_inputs(const std::string& prefix, int dim, Weights& weights) {
    const int shared = spec_.value_heads / spec_.key_heads;
    const int values = shared * spec_.value_dim;  // of a key head
    const std::string all = prefix + "in_proj_qkvz.weight";
    if (weights.has(all)) {
      const int group = 2 * (spec_.key_dim + values);
      const auto part = [&](int first, int run) { return part_of(all, dim, group, first, run); };
      ASSIGN_OR_RETURN(inputs_, weights.matrix_of(std::array{part(0, spec_.key_dim), part(spec_.key_dim, spec_.key_dim),
                                                             part(2 * spec_.key_dim, values)}));
      ASSIGN_OR_RETURN(output_gate_, weights.matrix_of(std::array{part(2 * spec_.key_dim + values, values)}));
    } else {
      ASSIGN_OR_RETURN(inputs_, weights.matrix({{prefix + "in_proj_qkv", spec_.channels()}}, dim, false));
      ASSIGN_OR_RETURN(output_gate_, weights.matrix({{prefix + "in_proj_z", spec_.values()}}, dim, false));
    }
    const std::string both = prefix + "in_proj_ba.weight";
    if (weights.has(both)) {
      ASSIGN_OR_RETURN(gates_, weights.matrix_of(std::array{part_of(both, dim, 2 * shared, 0, shared),
                                                            part_of(both, dim, 2 * shared, shared, shared)}));
    } else {
      ASSIGN_OR_RETURN(
          gates_, weights.matrix({{prefix + "in_proj_b", spec_.value_heads}, {prefix + "in_proj_a", spec_.value_heads}},
                                 dim, false));
    }
    return {};
  }

  /// `run` rows of every group of `group`, from its row `first` on.
  WeightSlice part_of(const std::string& name, int dim, int group, int first, int run) const {
    return {.name = name,
            .shape = {int64_t{spec_.key_heads} * group, dim},
            .first_row = first,
            .rows = spec_.key_heads * run,
            .cols = dim,
            .step = group,
            .run = run};
  }

  DeltaNetSpec spec_;
  int layer_;
  float norm_eps_;
  Matrix inputs_;  // q | k | v
  Matrix gates_;   // beta | time
  Matrix output_gate_;
  Matrix output_;
  ShortConvWeights conv_;
  DeltaNetParams params_;
  Tensor q_norm_;
  Tensor k_norm_;
  Tensor norm_;
};

}  // namespace

Result<std::unique_ptr<Block>> make_block(const DeltaNetSpec& spec, const BlockPlace& place, Weights& weights) {
  auto block = std::make_unique<DeltaNet>(spec, place);
  TRY(block->load(place, weights));
  return std::unique_ptr<Block>(std::move(block));
}

}  // namespace quern
