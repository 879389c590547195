#include "ops/grow_queries.h"

#include "ops/gpu_testing.h"

namespace quern::testing {
namespace {

void expect_reference(Dtype type, int32_t dim) {
  TestDevice device;
  Exec exec = device.exec();
  exec.activations = type;
  std::vector<int32_t> positions = {0, 15, 16, 31, 32, 100, 5000};
  const auto tokens = static_cast<int32_t>(positions.size());
  FloatMatrix q = FloatMatrix::random(type, tokens, dim, 5, 1);
  FloatMatrix before = q;

  grow_queries(exec, q.tensor(), quern::view(positions), 0.3F, 16.0F);

  for (int32_t t = 0; t < tokens; ++t) {
    const double periods = std::floor(positions[static_cast<size_t>(t)] / 16.0);
    const double factor = 1.0 + static_cast<double>(0.3F) * std::log(1.0 + periods);
    for (int32_t i = 0; i < dim; ++i) {
      const double expected = before.get(t, i) * factor;
      ASSERT_NEAR(q.get(t, i), expected,
                  (1e-6 + rounding(type)) * std::abs(expected) + 3e-8);  // half a subnormal step of f16
    }
  }
}

TEST(GrowQueries, MultipliesByTheLogarithmOfWholePeriods) {
  at_every_isa([] {
    for (const int32_t dim : {1, 20, 576}) expect_reference(Dtype::f32, dim);
  });
}

using GrowQueriesGpu = OnGpu;

TEST_F(GrowQueriesGpu, TakesEveryType) {
  for (const Dtype type : activation_types) expect_reference(type, 576);
}

}  // namespace
}  // namespace quern::testing
