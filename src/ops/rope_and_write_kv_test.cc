#include "ops/rope_and_write_kv.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "formats/half.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/test_device.h"

namespace quern {
namespace {

struct Shape {
  const char* name;
  int32_t heads, kv_heads, head_dim, dims;
  bool norm, interleaved;
};

const Shape shapes[] = {{"Halves", 8, 2, 64, 64, false, false},     {"Neighbours", 4, 4, 64, 64, false, true},
                        {"Norms", 6, 2, 128, 128, true, false},     {"PartOfAHead", 4, 2, 80, 32, false, false},
                        {"NormsOfAPart", 2, 1, 96, 36, true, true}, {"NoRotation", 2, 2, 48, 0, true, false},
                        {"OddPairs", 2, 1, 20, 10, true, false},    {"OddNeighbours", 2, 1, 20, 6, false, true}};

class RopeAndWriteKv : public testing::TestWithParam<Shape> {};

constexpr int32_t page_tokens = 16;
constexpr int32_t pages = 4;

/// Two sequences in pages of their own.
struct Sequences {
  std::vector<int32_t> starts{0, 3, 7};
  std::vector<int32_t> rows{1, 0};
  std::vector<int32_t> positions{0, 1, 2, 14, 15, 16, 17};
  std::vector<int32_t> table{3, 1, 0, 2};
  std::vector<float> scales;

  Segments segments() { return {view(starts), view(rows), view(positions)}; }
  PagedKv pages_of(std::vector<std::byte>& memory, const Shape& shape, Dtype dtype) {
    PagedKv kv;
    kv.page_bytes = int64_t{2} * shape.kv_heads * page_tokens * shape.head_dim * dtype_bytes(dtype);
    memory.assign(static_cast<size_t>(pages * kv.page_bytes), std::byte{0});
    kv.pool = memory.data();
    kv.table = Tensor::dense(reinterpret_cast<std::byte*>(table.data()), Dtype::i32, 2, 2);
    kv.heads = shape.kv_heads;
    kv.head_dim = shape.head_dim;
    kv.dtype = dtype;
    if (dtype == Dtype::f8) {
      scales.assign(static_cast<size_t>(shape.kv_heads), 0.03F);
      kv.k_scale = kv.v_scale = view(scales);
    }
    return kv;
  }
};

/// What a pool holds, as floats.
std::vector<float> values_of(const std::vector<std::byte>& memory, Dtype dtype) {
  std::vector<float> values(memory.size() / static_cast<size_t>(dtype_bytes(dtype)));
  if (dtype == Dtype::f32) std::memcpy(values.data(), memory.data(), memory.size());
  for (size_t i = 0; i < values.size() && dtype == Dtype::f8; ++i) {
    values[i] = e4m3_to_f32(static_cast<uint8_t>(memory[i]));
  }
  return values;
}

TEST_P(RopeAndWriteKv, EqualsTheOperationsOneAfterTheOther) {
  const Shape& shape = GetParam();
  at_every_isa([&] {
    for (const auto& [padding, dtype] : {std::pair{4, Dtype::f32}, {3, Dtype::f32}, {4, Dtype::f8}, {3, Dtype::f8}}) {
      TestDevice device;
      Exec exec = device.exec();
      Sequences sequences;
      const int32_t q_size = shape.heads * shape.head_dim;
      const int32_t kv_size = shape.kv_heads * shape.head_dim;
      TestMatrix qkv(7, q_size + 2 * kv_size, padding);
      std::mt19937 random(3);
      std::normal_distribution<float> normal;
      for (int32_t row = 0; row < 7; ++row) {
        for (int32_t col = 0; col < qkv.cols(); ++col) qkv.at(row, col) = normal(random);
      }
      TestMatrix expected = qkv;
      std::vector<float> inverse;
      for (int32_t i = 0; i < shape.dims / 2; ++i) inverse.push_back(1.0F / static_cast<float>(1 + i));
      std::vector<float> q_norm(static_cast<size_t>(shape.head_dim), 1.5F);
      std::vector<float> k_norm(static_cast<size_t>(shape.head_dim), 0.75F);
      k_norm[1] = -2.0F;
      HeadTransform transform;
      if (shape.norm) transform = {view(q_norm), view(k_norm), 1e-6F, {}, false};
      if (shape.dims > 0) transform.table = rope_table(exec, view(sequences.positions), view(inverse), 1.0F);
      transform.interleaved = shape.interleaved;
      std::vector<std::byte> memory;
      std::vector<std::byte> expected_memory;
      const PagedKv kv = sequences.pages_of(memory, shape, dtype);
      const PagedKv expected_kv = sequences.pages_of(expected_memory, shape, dtype);
      const Tensor q = expected.tensor().columns(0, q_size);
      const Tensor k = expected.tensor().columns(q_size, kv_size);
      if (shape.norm) {
        rms_norm_heads(exec, q, transform.q_norm, transform.eps);
        rms_norm_heads(exec, k, transform.k_norm, transform.eps);
      }
      if (shape.dims > 0) {
        rope(exec, q, transform.table, shape.head_dim, shape.interleaved);
        rope(exec, k, transform.table, shape.head_dim, shape.interleaved);
      }
      write_kv(exec, k, expected.tensor().columns(q_size + kv_size, kv_size), expected_kv, sequences.segments());

      const Tensor all = qkv.tensor();
      rope_and_write_kv(exec, all.columns(0, q_size), all.columns(q_size, kv_size),
                        all.columns(q_size + kv_size, kv_size), transform, kv, sequences.segments());

      const float error = testing_on_gpu() ? 4e-6F : 0.0F;
      for (int32_t row = 0; row < 7; ++row) {
        for (int32_t col = 0; col < q_size; ++col) ASSERT_NEAR(qkv.at(row, col), expected.at(row, col), error);
      }
      const std::vector<float> written = values_of(memory, dtype);
      const std::vector<float> wanted = values_of(expected_memory, dtype);
      for (size_t i = 0; i < written.size(); ++i) {
        const float step = testing_on_gpu() && dtype == Dtype::f8 ? std::fabs(wanted[i]) / 8 + 0x1p-9F : error;
        ASSERT_NEAR(written[i], wanted[i], step) << i;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, RopeAndWriteKv, testing::ValuesIn(shapes),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace quern
