#include "ops/copy_pages.h"

#include <gtest/gtest.h>
#include <vector>

#include "tensor/device.h"

namespace quern {
namespace {

TEST(CopyPages, CopiesWholePagesAndNothingElse) {
  const auto device = make_device(DeviceKind::cpu, {.threads = 2}).value();
  Arena arena(nullptr, 0);
  Exec exec{device->queue(), arena};
  std::vector<int32_t> pool(5 * 8);
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<int32_t>(i);
  std::vector<int32_t> from{0, 3};
  std::vector<int32_t> to{4, 1};
  const auto view = [](std::vector<int32_t>& v) {
    return Tensor::dense(reinterpret_cast<std::byte*>(v.data()), Dtype::i32, static_cast<int32_t>(v.size()));
  };

  copy_pages(exec, reinterpret_cast<std::byte*>(pool.data()), 8 * sizeof(int32_t), view(from), view(to));

  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(pool[static_cast<size_t>(i)], i);
    EXPECT_EQ(pool[static_cast<size_t>(8 + i)], 24 + i);
    EXPECT_EQ(pool[static_cast<size_t>(16 + i)], 16 + i);
    EXPECT_EQ(pool[static_cast<size_t>(32 + i)], i);
  }
}

}  // namespace
}  // namespace quern
