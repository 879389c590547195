#include "ops/select.h"

#include "ops/test_device.h"

namespace quern {
namespace {

TEST(SelectRows, TakesRowsInTheGivenOrder) {
  at_every_isa([] {
    TestDevice device;
    Exec exec = device.exec();
    TestMatrix x = TestMatrix::random(9, 33, 1);
    std::vector<int32_t> indices{8, 0, 3, 3};

    const Tensor y = select_rows(exec, x.tensor(), view(indices));

    ASSERT_EQ(y.dims[0], 4);
    for (int32_t i = 0; i < 4; ++i) {
      for (int32_t col = 0; col < 33; ++col)
        EXPECT_EQ(value_at(y, i, col), x.get(indices[static_cast<size_t>(i)], col));
    }
  });
}

}  // namespace
}  // namespace quern
