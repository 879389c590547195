// How files of Hugging Face spell experts in MXFP4: X_blocks and X_scales, which are one matrix for all others.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/source.h"

namespace quern {

/// The type of a matrix whose 4-bit floats are in its bytes and whose powers of two, one for each 32, are apart.
inline constexpr std::string_view mxfp4_blocks_type = "MXFP4_BLOCKS";

/// Makes one tensor "X.weight" of each such pair; `where` starts messages.
Result<std::vector<StoredTensor>> join_mxfp4_pairs(std::vector<StoredTensor> tensors, const std::string& where);

}  // namespace quern
