// 8-bit floats of safetensors files. Their scales are tensors beside them (checkpoint/fp8_weights.h).
#include <cstring>

#include "checkpoint/fp8_weights.h"
#include "checkpoint/source.h"

namespace quern {
namespace {

void copy_row(const std::byte* stored, int64_t cols, std::byte* data, std::byte* /*scales*/) {
  std::memcpy(data, stored, static_cast<size_t>(cols));
}

[[maybe_unused]] const bool added = register_scheme({f8_type, FormatId::f8, 1, 1, copy_row});

}  // namespace
}  // namespace quern
