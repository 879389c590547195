// Phi 3 to 4: q, k, v in one matrix and gate, up in another; long contexts by longrope. The static choice of its list
// is rope_rules.cc's.
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec phi3(Config& config) {
  config.set_default("rms_norm_eps", 1e-5);
  DecoderSpec spec = llama_like(config);
  const int window = config.count_or("sliding_window", 0, max_context);
  set_windows(config, spec, window < spec.max_positions ? window : 0, [](int) { return true; });
  return spec;
}

const Family third{"Phi3ForCausalLM", phi3};

}  // namespace
}  // namespace quern
