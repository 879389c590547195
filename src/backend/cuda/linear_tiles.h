// The product of a weight that lies in rows (floats, 8-bit floats) with few tokens, limited by how fast the weight can
// be read; by the matrix instructions of warpgroups.
#pragma once

#include "backend/cuda/blas.h"

namespace quern::cuda {

/// To how many tokens that is faster than the library: measured. 0 where the GPU or the driver cannot.
int32_t most_tiles_tokens(Dtype type);

/// Whether multiply_tiles() can.
bool takes_tiles(const Product& product, const std::byte* y, const std::byte* x, const std::byte* w);

/// y = x W^T (+ bias) (+ y), as Blas::multiply(); false, with nothing done, where the library has to do it.
bool multiply_tiles(const Queue& queue, const Product& product, std::byte* y, const std::byte* x, const std::byte* w);

}  // namespace quern::cuda
