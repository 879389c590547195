// What the tests of families share: small configurations, and what becomes of them.
#pragma once

#include <string>

#include "model/families/family.h"

namespace quern::testing {

/// The description of a configuration's model, or why it is refused.
inline std::string described(const std::string& text) {
  const auto spec = make_spec(Json::parse(text).value());
  return spec.ok() ? describe(*spec) : spec.error().message;
}

/// A small valid configuration with members added or replaced.
inline std::string with(const std::string& members) {
  Json config = Json::parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128})")
                    .value();
  const Json added = Json::parse(members).value();
  for (const auto& [key, value] : added.members()) config.set(key, value);
  return config.dump();
}

}  // namespace quern::testing
