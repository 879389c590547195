#include "apps/measure/model_work.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace quern {

double StepWork::seconds(const MachineLimits& limits) const {
  return std::max(weight_bytes / limits.read_bytes_per_second, flops / limits.flops_per_second) +
         kv_bytes / limits.read_bytes_per_second;
}

ModelWork::ModelWork(const Instance& instance) {
  const DecoderSpec& spec = instance.spec();
  vocabulary_ = static_cast<double>(spec.vocab) * spec.dim;
  for (const LayerSpec& layer : spec.layers) {
    const auto add_part = [&](const auto& part) { add(part, spec.dim); };
    std::visit(add_part, layer.mixer);
    std::visit(add_part, layer.ffn);
  }
  tables_ = vocabulary_ * (spec.tied ? 1 : 2);  // embedding and output matrix
  if (spec.layer_input) {
    const double inputs = static_cast<double>(spec.layers.size()) * spec.layer_input->dim;
    tables_ += spec.layer_input->vocab * inputs;
    dense_ += 3.0 * spec.dim * inputs;
  }
  const auto bytes = static_cast<double>(instance.memory.weights);
  weight_bytes_ = bytes / (dense_ + experts_ + tables_);
  output_bytes_ = weight_bytes_;
  const KvLayout kv = kv_layout(spec, 2);
  kv_bytes_ =
      static_cast<double>(instance.memory.kv_page_bytes) * static_cast<double>(kv.groups.size()) / kv.page_tokens;
  state_bytes_ = static_cast<double>(kv.state_bytes);
  if (instance.options.quantization == "fp8") {
    rate_ = fp8_rate;
    output_bytes_ = 2;  // these stay as they are
    weight_bytes_ = (bytes - output_bytes_ * tables_) / (dense_ + experts_);
  }
}

StepWork ModelWork::decode(double batch, double context) const {
  const double touched = experts_ * (1 - std::pow(1 - used_, batch));
  StepWork work;
  work.weight_bytes = weight_bytes_ * (dense_ + touched) + output_bytes_ * vocabulary_;
  work.kv_bytes = batch * (context * kv_bytes_ + 2 * state_bytes_);
  work.flops = 2 * batch * (dense_ + experts_ * used_ + vocabulary_) / rate_;
  return work;
}

StepWork ModelWork::prefill(double tokens) const {
  const double touched = experts_ * (1 - std::pow(1 - used_, tokens));
  StepWork work;
  work.weight_bytes = weight_bytes_ * (dense_ + touched) + output_bytes_ * vocabulary_;
  work.flops = (2 * tokens * (dense_ + experts_ * used_) + score_flops_ * tokens * tokens / 2) / rate_;
  return work;
}

}  // namespace quern
