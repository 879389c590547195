// GgufArchitecture: how llama.cpp spells one kind of model. One file of checkpoint/architectures/ holds each, or a few
// that are alike.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quern {

class GgufTranslation;

/// The stem of a tensor's name in GGUF ("attn_q" of blk.3.attn_q.weight, or "token_embd") and what it means
/// ("self_attn.q_proj", or "model.embed_tokens").
struct GgufName {
  std::string_view gguf, hugging_face;
};

struct GgufArchitecture {
  std::string_view name, model_type, class_name;
  Status (*translate)(GgufTranslation& translation);  // metadata to the keys of config.json
  std::span<const GgufName> names = {};               // those that differ from the common ones
  bool attention_in_some = false;                     // a layer of 0 key and value heads has no attention
  bool rotary_pairs = false;                          // rows of q and k stand as pairs (2i, 2i+1) of each head
};

/// Constructing one registers it.
struct GgufEntry {
  explicit GgufEntry(const GgufArchitecture& architecture);
};

/// nullptr when there is none of that name.
const GgufArchitecture* find_gguf_architecture(std::string_view name);
/// Their names, sorted.
std::vector<std::string_view> gguf_architectures();

/// "model.layers.3.mlp.up_proj.weight" for "blk.3.ffn_up.weight". Names that mean nothing to the architecture stay as
/// they are.
std::string hugging_face_name(std::string_view gguf_name, const GgufArchitecture& architecture);

}  // namespace quern
