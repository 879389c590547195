#include "ops/gpu_testing.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rope_and_write_kv.h"

namespace quern::testing {
namespace {

struct Shape {
  const char* name;
  int32_t heads, kv_heads, head_dim, dims;
  bool norm, interleaved;
  Dtype activations, pages;
};

const Shape shapes[] = {
    {"Halves", 8, 2, 128, 128, false, false, Dtype::bf16, Dtype::bf16},
    {"Neighbours", 4, 4, 64, 64, false, true, Dtype::f16, Dtype::f16},
    {"Norms", 32, 4, 128, 128, true, false, Dtype::bf16, Dtype::f16},
    {"LongHeads", 3, 1, 256, 256, true, false, Dtype::f16, Dtype::f32},
    {"NormsOfNeighbours", 5, 5, 32, 32, true, true, Dtype::bf16, Dtype::bf16},
    {"PartOfAHead", 4, 2, 80, 32, true, false, Dtype::bf16, Dtype::bf16},
    {"NoRotation", 2, 2, 64, 0, true, false, Dtype::f16, Dtype::bf16},
    {"OddNeighbours", 2, 1, 20, 6, false, true, Dtype::bf16, Dtype::f16},
};

class RopeAndWriteKvGpu : public OnGpu, public ::testing::WithParamInterface<Shape> {};

constexpr int32_t tokens = 40;
constexpr int32_t page_tokens = 32;
constexpr int32_t pages = 6;

/// Three sequences of which one is nobody's.
struct Sequences {
  std::vector<int32_t> starts{0, 30, 31, 40};
  std::vector<int32_t> rows{1, 0, 2};
  std::vector<int32_t> positions;
  std::vector<int32_t> table{3, 1, 0, 2, 5, 4};

  Sequences() {
    for (int32_t i = 0; i < 30; ++i) positions.push_back(10 + i);
    positions.push_back(-1);
    for (int32_t i = 0; i < 9; ++i) positions.push_back(i);
  }
  Segments segments() { return {quern::view(starts), quern::view(rows), quern::view(positions)}; }
  PagedKv pages_of(std::vector<std::byte>& memory, const Shape& shape) {
    const int64_t bytes = int64_t{2} * shape.kv_heads * page_tokens * shape.head_dim * dtype_bytes(shape.pages);
    memory.assign(static_cast<size_t>(pages * bytes), std::byte{0});
    PagedKv kv;
    kv.pool = memory.data();
    kv.page_bytes = bytes;
    kv.table = Tensor::dense(reinterpret_cast<std::byte*>(table.data()), Dtype::i32, 3, 2);
    kv.page_tokens = page_tokens;
    kv.heads = shape.kv_heads;
    kv.head_dim = shape.head_dim;
    kv.dtype = shape.pages;
    return kv;
  }
};

TEST_P(RopeAndWriteKvGpu, EqualsTheOperationsOneAfterTheOtherWithinRounding) {
  const Shape& shape = GetParam();
  for (const int32_t padding : {8, 3}) {
    TestDevice device;
    Exec exec = device.exec();
    exec.activations = shape.activations;
    Sequences sequences;
    const int32_t q_size = shape.heads * shape.head_dim;
    const int32_t kv_size = shape.kv_heads * shape.head_dim;
    FloatMatrix qkv = FloatMatrix::random(shape.activations, tokens, q_size + 2 * kv_size, padding, 3);
    FloatMatrix expected = qkv;
    std::vector<float> inverse;
    for (int32_t i = 0; i < shape.dims / 2; ++i) inverse.push_back(1.0F / static_cast<float>(1 + i));
    std::vector<float> q_norm;
    std::vector<float> k_norm;
    for (int32_t i = 0; i < shape.head_dim; ++i) {
      q_norm.push_back(0.5F + 0.01F * static_cast<float>(i % 50));
      k_norm.push_back(1.25F - 0.01F * static_cast<float>(i % 70));
    }
    HeadTransform transform;
    if (shape.norm) transform = {quern::view(q_norm), quern::view(k_norm), 1e-6F, {}, false};
    if (shape.dims > 0)
      transform.table = rope_table(exec, quern::view(sequences.positions), quern::view(inverse), 1.0F);
    transform.interleaved = shape.interleaved;
    std::vector<std::byte> memory;
    std::vector<std::byte> expected_memory;
    const PagedKv kv = sequences.pages_of(memory, shape);
    const PagedKv expected_kv = sequences.pages_of(expected_memory, shape);
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

    const double error = 12 * rounding(shape.activations);
    for (int32_t row = 0; row < tokens; ++row) {
      if (sequences.positions[static_cast<size_t>(row)] < 0) continue;
      for (int32_t col = 0; col < q_size; ++col) ASSERT_NEAR(qkv.get(row, col), expected.get(row, col), error);
    }
    const auto count = static_cast<int32_t>(memory.size()) / dtype_bytes(shape.pages);
    const Tensor kept = Tensor::dense(memory.data(), shape.pages, 1, count);
    const Tensor expected_kept = Tensor::dense(expected_memory.data(), shape.pages, 1, count);
    double largest = 0.0;
    for (int32_t i = 0; i < count; ++i) {
      ASSERT_NEAR(float_at(kept, 0, i), float_at(expected_kept, 0, i), error + 4 * rounding(shape.pages)) << i;
      largest = std::max(largest, std::abs(float_at(kept, 0, i)));
    }
    EXPECT_GT(largest, 1.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RopeAndWriteKvGpu, ::testing::ValuesIn(shapes),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace quern::testing
