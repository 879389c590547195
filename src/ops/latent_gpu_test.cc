// What attention over latents and shared experts need, with half floats on a GPU.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/gpu_testing.h"

namespace quern::testing {
namespace {

using LatentGpu = OnGpu;

TEST_F(LatentGpu, GatesRowsOfEveryType) {
  for (const Dtype type : activation_types) {
    TestDevice device;
    Exec exec = device.exec();
    exec.activations = type;
    FloatMatrix x = FloatMatrix::random(type, 5, 777, 3, 1);
    FloatMatrix y = x;
    TestMatrix gate = TestMatrix::random(5, 1, 2, 3.0F);

    gate_rows(exec, y.tensor(), gate.tensor());

    for (int32_t row = 0; row < 5; ++row) {
      const double factor = 1.0 / (1.0 + std::exp(-gate.get(row, 0)));
      for (int32_t i = 0; i < 777; ++i) {
        const double expected = x.get(row, i) * factor;
        ASSERT_NEAR(y.get(row, i), expected, 1e-6 + 2 * rounding(type) * std::abs(expected));
      }
    }
  }
}

TEST_F(LatentGpu, CopiesPartsOfHeadsOfEveryType) {
  constexpr int32_t heads = 16;
  for (const Dtype type : activation_types) {
    TestDevice device;
    Exec exec = device.exec();
    exec.activations = type;
    FloatMatrix x = FloatMatrix::random(type, 9, heads * 192, 8, 1);
    FloatMatrix y(type, 9, heads * 64, 8);
    const Tensor all = x.tensor();
    const Tensor to = y.tensor();
    const Tensor part{all.data + int64_t{128} * dtype_bytes(type), {all.strides[0], 192, 1}, {9, heads, 64}, type, 3};
    const Tensor whole{to.data, {to.strides[0], 64, 1}, {9, heads, 64}, type, 3};

    copy_heads(exec, whole, part);

    for (int32_t row = 0; row < 9; ++row) {
      for (int32_t i = 0; i < heads * 64; ++i) ASSERT_EQ(y.get(row, i), x.get(row, i / 64 * 192 + 128 + i % 64));
    }
  }
}

/// One sequence of latents in pages, and a step over all of it.
struct Latents {
  static constexpr int32_t rank = 512;
  static constexpr int32_t dim = 576;
  static constexpr int32_t heads = 4;
  static constexpr int32_t tokens = 45;

  Dtype type;
  FloatMatrix q, k;
  std::vector<std::byte> pool;
  std::vector<int32_t> table{3, 1, 2}, starts{0, tokens}, rows{0}, positions;
  PagedKv kv;

  explicit Latents(Dtype of)
      : type(of),
        q(FloatMatrix::random(of, tokens, heads * dim, 8, 1)),
        k(FloatMatrix::random(of, tokens, dim, 8, 2)),
        pool(size_t{4} * 16 * dim * static_cast<size_t>(dtype_bytes(of)), std::byte{0xFF}) {
    positions.resize(tokens);
    std::iota(positions.begin(), positions.end(), 0);
    kv.pool = pool.data();
    kv.page_bytes = int64_t{16} * dim * dtype_bytes(type);
    kv.table = Tensor::dense(reinterpret_cast<std::byte*>(table.data()), Dtype::i32, 1, 3);
    kv.heads = 1;
    kv.head_dim = dim;
    kv.latent_dim = rank;
    kv.dtype = type;
  }

  std::vector<double> reference(int32_t token, int32_t head, float scale) {
    std::vector<double> result(rank, 0.0);
    double total = 0.0;
    for (int32_t j = 0; j <= token; ++j) {
      double score = 0.0;
      for (int32_t i = 0; i < dim; ++i) score += q.get(token, head * dim + i) * k.get(j, i);
      const double weight = std::exp(score * static_cast<double>(scale));
      total += weight;
      for (int32_t i = 0; i < rank; ++i) result[static_cast<size_t>(i)] += weight * k.get(j, i);
    }
    for (double& value : result) value /= total;
    return result;
  }
};

TEST_F(LatentGpu, AttentionAgreesWithADoubleReference) {
  constexpr float scale = 0.05F;
  for (const Dtype type : activation_types) {
    TestDevice device;
    Exec exec = device.exec();
    exec.activations = type;
    Latents latents(type);
    const Segments segments{view(latents.starts), view(latents.rows), view(latents.positions)};

    write_kv(exec, latents.k.tensor(), {}, latents.kv, segments);
    const Tensor out =
        attention(exec, latents.q.tensor(), latents.kv, segments, {.heads = Latents::heads, .scale = scale});

    ASSERT_EQ(out.dims[1], Latents::heads * Latents::rank);
    for (const int32_t token : {0, 16, 31, 44}) {
      for (int32_t head = 0; head < Latents::heads; ++head) {
        const std::vector<double> expected = latents.reference(token, head, scale);
        for (int32_t i = 0; i < Latents::rank; ++i) {
          const double wanted = expected[static_cast<size_t>(i)];
          ASSERT_NEAR(float_at(out, token, head * Latents::rank + i), wanted,
                      1e-5 + 2 * rounding(type) * std::abs(wanted))
              << dtype_name(type) << " token " << token << " head " << head << " dim " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quern::testing
