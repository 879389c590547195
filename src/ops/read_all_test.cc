#include "ops/read_all.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "ops/test_device.h"

namespace quern {
namespace {

TEST(ReadAll, ReadsEveryWordOnce) {
  at_every_isa([] {
    TestDevice device;
    Exec exec = device.exec();
    std::vector<int32_t> words(4 * 12347);
    std::iota(words.begin(), words.end(), 1);
    std::vector<int32_t> sums(1000, 0);
    read_all(exec, view(words), view(sums));
    const auto wrapped = [](const std::vector<int32_t>& values) {
      uint32_t sum = 0;
      for (const int32_t value : values) sum += static_cast<uint32_t>(value);
      return sum;
    };
    EXPECT_EQ(wrapped(sums), wrapped(words));
  });
}

}  // namespace
}  // namespace quern
