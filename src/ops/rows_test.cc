#include "ops/rows.h"

#include <gtest/gtest.h>

#include "ops/linear_testing.h"

namespace quern {
namespace {

TEST(Embed, ReadsRowsOfEveryFormatExactly) {
  testing::at_every_level([] {
    for_each_format([]<typename Format>(Format) {
      SCOPED_TRACE(Format::name);
      const testing::RandomWeight table = testing::random_weight(Format::id, 53, 2 * 256, 1);
      std::vector<int32_t> ids = {0, 52, 7, 8, 7, 31, 40, 48, 15, 16, 1};
      testing::Bench bench(2);
      Exec exec = bench.exec();

      const Tensor y = embed(
          exec, table.weight,
          Tensor::dense(reinterpret_cast<std::byte*>(ids.data()), Dtype::i32, static_cast<int32_t>(ids.size())), 0.5F);

      for (size_t t = 0; t < ids.size(); ++t) {
        for (int k = 0; k < 512; ++k) ASSERT_EQ(y.row<float>(static_cast<int64_t>(t))[k], 0.5F * table.at(ids[t], k));
      }
    });
  });
}

TEST(Embed, TakesColumnsThatAreNoMultipleOf32) {
  testing::at_every_level([] {
    const testing::RandomWeight table = testing::random_weight(FormatId::bf16, 10, 40, 1);
    std::vector<int32_t> ids = {9, 3};
    testing::Bench bench(1);
    Exec exec = bench.exec();

    const Tensor y =
        embed(exec, table.weight, Tensor::dense(reinterpret_cast<std::byte*>(ids.data()), Dtype::i32, 2), 1.0F);

    for (int k = 0; k < 40; ++k) ASSERT_EQ(y.row<float>(1)[k], table.at(3, k));
  });
}

}  // namespace
}  // namespace quern
