#include "ops/elementwise.h"

#include "ops/test_device.h"

namespace quern {
namespace {

TEST(Elementwise, AddsScalesAndCaps) {
  at_every_isa([] {
    for (const int32_t dim : {1, 15, 576, 9001}) {
      TestDevice device;
      Exec exec = device.exec();
      TestMatrix x = TestMatrix::random(5, dim, 1, 20.0F);
      TestMatrix y = TestMatrix::random(5, dim, 2, 20.0F);
      TestMatrix sums = x;
      TestMatrix scaled = x;
      TestMatrix capped = x;
      TestMatrix tenths = x;
      TestMatrix scaled_by = x;
      std::vector<float> factor = {0.125F};

      add(exec, sums.tensor(), y.tensor());
      add(exec, tenths.tensor(), y.tensor(), 0.1F);
      scale(exec, scaled.tensor(), 0.125F);
      scale_by(exec, scaled_by.tensor(), view(factor));
      softcap(exec, capped.tensor(), 30.0F);

      for (int32_t row = 0; row < 5; ++row) {
        for (int32_t i = 0; i < dim; ++i) {
          ASSERT_EQ(sums.at(row, i), x.at(row, i) + y.at(row, i));
          ASSERT_NEAR(tenths.get(row, i), x.get(row, i) + static_cast<double>(0.1F) * y.get(row, i), 1e-5);
          ASSERT_EQ(scaled.at(row, i), x.at(row, i) * 0.125F);
          ASSERT_EQ(scaled_by.at(row, i), scaled.at(row, i));
          ASSERT_NEAR(capped.get(row, i), 30.0 * std::tanh(x.get(row, i) / 30.0), 1e-5);
        }
      }
    }
  });
}

TEST(Elementwise, GatesRows) {
  at_every_isa([] {
    TestDevice device;
    Exec exec = device.exec();
    TestMatrix x = TestMatrix::random(5, 77, 1);
    TestMatrix gate = TestMatrix::random(5, 1, 2, 3.0F);
    TestMatrix y = x;

    gate_rows(exec, y.tensor(), gate.tensor());

    for (int32_t row = 0; row < 5; ++row) {
      const double factor = 1.0 / (1.0 + std::exp(-gate.get(row, 0)));
      for (int32_t i = 0; i < 77; ++i) ASSERT_NEAR(y.get(row, i), x.get(row, i) * factor, 1e-6);
    }
  });
}

TEST(Elementwise, CopiesPartsOfHeads) {
  at_every_isa([] {
    constexpr int32_t heads = 3;
    TestDevice device;
    Exec exec = device.exec();
    TestMatrix x = TestMatrix::random(4, heads * 10, 1);
    TestMatrix y = TestMatrix::random(4, heads * 7, 2);
    const TestMatrix before = y;
    const auto part = [](const Tensor& matrix, int32_t head_dim, int32_t first) {
      Tensor view{matrix.data + int64_t{first} * dtype_bytes(matrix.dtype),
                  {matrix.strides[0], head_dim, 1},
                  {matrix.dims[0], heads, 5},
                  matrix.dtype,
                  3};
      return view;
    };

    copy_heads(exec, part(y.tensor(), 7, 2), part(x.tensor(), 10, 4));

    for (int32_t row = 0; row < 4; ++row) {
      for (int32_t i = 0; i < heads * 7; ++i) {
        const int32_t in_head = i % 7 - 2;
        const bool copied = in_head >= 0 && in_head < 5;
        ASSERT_EQ(y.get(row, i), copied ? x.get(row, i / 7 * 10 + 4 + in_head) : TestMatrix(before).get(row, i));
      }
    }
  });
}

}  // namespace
}  // namespace quern
