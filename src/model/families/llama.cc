// Llama and what differs from it in a number: Mistral has a window on every layer.
#include "model/families/family.h"

namespace quern {
namespace {

DecoderSpec mistral(Config& config) {
  DecoderSpec spec = llama_like(config);
  const int window = config.count_or("sliding_window", 0, 1 << 27);
  set_windows(config, spec, window, [](int) { return true; });
  return spec;
}

const Family llama{"LlamaForCausalLM", llama_like};
const Family windowed{"MistralForCausalLM", mistral};

}  // namespace
}  // namespace quern
