// Weights of random values for the tests of operations that read packed weights.
#pragma once

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "formats/list.h"
#include "ops/linear.h"
#include "ops/test_device.h"

namespace quern::testing {

/// A weight with what it was made from: `values` is what its bytes mean.
struct RandomWeight {
  std::vector<float> values;  // [rows][cols]
  std::vector<std::byte> data, scales, packed;
  Weight weight;

  float at(int row, int col) const {
    return values[static_cast<size_t>(row) * static_cast<size_t>(weight.cols) + static_cast<size_t>(col)];
  }
};

template <typename Format>
void fill_rows(RandomWeight& out, int cols, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const int64_t in_row = groups_of<Format>(cols);
  const int64_t groups = static_cast<int64_t>(out.values.size()) / cols * in_row;
  out.data.resize(static_cast<size_t>(groups * Format::data_bytes));
  out.scales.resize(static_cast<size_t>(groups * Format::scale_bytes));
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t first = group % in_row * Format::group;
    const int64_t count = std::min<int64_t>(Format::group, cols - first);  // what stands beyond the columns is not read
    float values[Format::group];
    for (float& value : values) value = normal(random) + 0.25F;
    std::byte* data = out.data.data() + group * Format::data_bytes;
    std::byte* scales = out.scales.data() + group * Format::scale_bytes;
    Format::encode(values, data, scales);
    for (int i = 0; i < Format::group / 8; ++i) {
      const Eight eight = Format::decode8(Format::load8(data, i), Format::load_scales(scales, i), i);
      std::memcpy(values + 8 * i, eight.v, sizeof eight.v);
    }
    std::copy_n(values, count, out.values.data() + group / in_row * cols + first);
  }
}

/// Packed in pieces, as a loader does it. Where nothing is packed the memory is NaN.
inline RandomWeight random_weight(FormatId format, int rows, int cols, unsigned seed) {
  RandomWeight out;
  std::mt19937 random(seed);
  out.values.resize(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  visit_format(format, [&]<typename Format>(Format) { fill_rows<Format>(out, cols, random); });
  out.packed.assign(static_cast<size_t>(packed_bytes(test_device_kind(), format, rows, cols)), std::byte{0xFF});
  const int step = 2 * panel_rows(test_device_kind(), format);
  const size_t data_bytes = out.data.size() / static_cast<size_t>(rows);
  const size_t scale_bytes = out.scales.size() / static_cast<size_t>(rows);
  for (int first = 0; first < rows; first += step) {
    const auto row = static_cast<size_t>(first);
    const Weight piece{format,
                       Layout::rows,
                       std::min(step, rows - first),
                       cols,
                       out.data.data() + row * data_bytes,
                       out.scales.data() + row * scale_bytes};
    pack_panels(test_device_kind(), out.packed.data(), piece, first, rows);
  }
  out.weight = {format, Layout::packed, rows, cols, out.packed.data(), nullptr};
  return out;
}

/// The parts one above the other.
inline Matrix matrix_of(const std::vector<const RandomWeight*>& parts) {
  Matrix matrix;
  for (const RandomWeight* part : parts) {
    matrix.parts[matrix.count++] = part->weight;
    matrix.rows += part->weight.rows;
    matrix.cols = part->weight.cols;
  }
  return matrix;
}

/// A place to run operations in; activations are poisoned with NaN before every use.
class Bench {
 public:
  explicit Bench(int threads, int64_t bytes = int64_t{16} << 20) : device_(threads, bytes) {}

  Exec exec() { return device_.exec(); }

 private:
  TestDevice device_;
};

inline Tensor view(std::vector<float>& values, int rows, int cols) {
  return Tensor::dense(reinterpret_cast<std::byte*>(values.data()), Dtype::f32, rows, cols);
}

inline std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// Runs body() at every instruction-set level of this machine, and on its GPU.
template <typename Body>
void at_every_level(Body&& body) {
  at_every_isa(body);
}

}  // namespace quern::testing
