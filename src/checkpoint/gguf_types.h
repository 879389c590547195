// The types of tensors in GGUF files, by their numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quern {

struct GgufTensorType {
  uint32_t id;
  std::string_view name;
  int64_t block_values;
  int64_t block_bytes;
};

/// All types whose size is known, loadable or not: a file may hold tensors that a model does not need. Null for others.
const GgufTensorType* find_gguf_type(uint32_t id);

/// What a tensor has whose type find_gguf_type does not know, and what to do about it.
std::string unknown_gguf_type(uint32_t id);

}  // namespace quern
