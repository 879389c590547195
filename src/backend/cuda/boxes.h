// Descriptions of matrices to the units that copy boxes of them into shared memory (sm_90).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda.h>

namespace quern::cuda {

/// Whether the driver can describe matrices.
bool describes_boxes();

/// Rows of bytes, `stride` bytes apart, of which a copy brings `box_bytes` (at most 128) of `box_rows`; the eight
/// chunks of 16 bytes of row r of a box are swapped by r % 8. False if the driver cannot.
bool describe_rows(CUtensorMap& map, const std::byte* data, int64_t row_bytes, int64_t stride, int32_t rows,
                   int box_bytes, int box_rows);

/// Neighbouring matrices of one size, their rows of bytes one behind the other.
struct BoxedMatrices {
  const std::byte* data = nullptr;  // of the first
  int64_t row_bytes = 0;
  int32_t rows = 0;  // of each
  int64_t step = 0;  // bytes from matrix to matrix
  int32_t count = 0;
};

/// A box's coordinates: bytes, row, matrix.
bool describe_rows(CUtensorMap& map, const BoxedMatrices& matrices, int box_bytes, int box_rows);

/// The same of pairs of matrices, whose second one begins `apart` bytes behind the first: a box has eight rows of the
/// first, the same eight of the second, the next eight of the first ... Its coordinates: bytes, 0, 0, eights of rows,
/// pair.
bool describe_both(CUtensorMap& map, const BoxedMatrices& first, int64_t apart, int box_bytes, int box_rows);

/// The same of two matrices of so many rows, a multiple of 8, that lie one behind the other: a box has eight rows of
/// the first, the same eight of the second, the next eight of the first ... Its coordinates: bytes, 0, 0, eights of
/// rows.
bool describe_both(CUtensorMap& map, const std::byte* data, int64_t row_bytes, int32_t rows_each, int box_bytes,
                   int box_rows);

}  // namespace quern::cuda
