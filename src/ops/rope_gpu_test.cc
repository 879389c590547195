#include "ops/gpu_testing.h"
#include "ops/rope.h"

namespace quern::testing {
namespace {

using RopeGpu = OnGpu;

struct Shape {
  int32_t heads, head_dim, dims;
  bool interleaved;
};

TEST_F(RopeGpu, RotatesEveryTypeInVectorsAndAlone) {
  std::vector<int32_t> positions{0, 1, -1, 77, 8191, 131072, 999999};
  for (const Dtype type : activation_types) {
    for (const Shape shape : {Shape{8, 128, 128, false}, Shape{3, 64, 64, true}, Shape{2, 80, 32, false},
                              Shape{1, 256, 64, true}, Shape{2, 20, 12, false}, Shape{2, 20, 6, true}}) {
      for (const int32_t padding : {8, 3}) {
        TestDevice device;
        Exec exec = device.exec();
        exec.activations = type;
        const int32_t pairs = shape.dims / 2;
        std::vector<float> inverse;
        for (int32_t i = 0; i < pairs; ++i)
          inverse.push_back(std::pow(10000.0F, -static_cast<float>(i) / static_cast<float>(pairs)));
        FloatMatrix x = FloatMatrix::random(type, 7, shape.heads * shape.head_dim, padding, 1);
        FloatMatrix before = x;

        const Tensor table = rope_table(exec, quern::view(positions), quern::view(inverse), 1.25F);
        rope(exec, x.tensor(), table, shape.head_dim, shape.interleaved);

        for (int32_t token = 0; token < 7; ++token) {
          for (int32_t col = 0; col < shape.heads * shape.head_dim; ++col) {
            const int32_t i = col % shape.head_dim;
            if (i >= shape.dims) {
              ASSERT_EQ(x.get(token, col), before.get(token, col));
              continue;
            }
            const int32_t pair = shape.interleaved ? i / 2 : i % pairs;
            const bool second = shape.interleaved ? i % 2 == 1 : i >= pairs;
            const int32_t distance = shape.interleaved ? 1 : pairs;
            const double angle =
                positions[static_cast<size_t>(token)] * static_cast<double>(inverse[static_cast<size_t>(pair)]);
            const double other = before.get(token, second ? col - distance : col + distance);
            const double expected =
                1.25 * (before.get(token, col) * std::cos(angle) + (second ? other : -other) * std::sin(angle));
            ASSERT_NEAR(x.get(token, col), expected, 1e-6 + rounding(type) * std::abs(expected))
                << dtype_name(type) << " token " << token << " column " << col;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quern::testing
