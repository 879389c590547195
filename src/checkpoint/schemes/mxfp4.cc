// 4-bit floats of safetensors files; what scales them is a plane of its own in the file too.
#include <cstring>

#include "checkpoint/mxfp4_pairs.h"
#include "checkpoint/source.h"

namespace quern {
namespace {

void copy_row(const std::byte* stored, int64_t cols, std::byte* data, std::byte* /*scales*/) {
  std::memcpy(data, stored, static_cast<size_t>(cols / 2));
}

[[maybe_unused]] const bool added = register_scheme({mxfp4_blocks_type, FormatId::mxfp4, 32, 16, copy_row});

}  // namespace
}  // namespace quern
