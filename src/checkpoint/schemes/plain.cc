// Unquantized tensors, of safetensors and GGUF files alike: the runtime format keeps their bytes.
#include <cstring>

#include "checkpoint/source.h"

namespace quern {
namespace {

template <int64_t Bytes>
void copy_row(const std::byte* stored, int64_t cols, std::byte* data, std::byte* /*scales*/) {
  std::memcpy(data, stored, static_cast<size_t>(cols * Bytes));
}

[[maybe_unused]] const bool f32 = register_scheme({"F32", FormatId::f32, 1, 4, copy_row<4>});
[[maybe_unused]] const bool f16 = register_scheme({"F16", FormatId::f16, 1, 2, copy_row<2>});
[[maybe_unused]] const bool bf16 = register_scheme({"BF16", FormatId::bf16, 1, 2, copy_row<2>});

}  // namespace
}  // namespace quern
