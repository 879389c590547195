// Memory of a device, as loading uses it. Here, because tests of operations are linked with the devices.
#include "tensor/device.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace quern {
namespace {

class DeviceMemory : public ::testing::TestWithParam<DeviceKind> {};

/// The larger the memory, the longer a GPU takes to clear it.
TEST_P(DeviceMemory, IsZeroBeforeAnythingIsUploaded) {
  const auto made = make_device(GetParam(), {});
  if (!made.ok()) GTEST_SKIP() << made.error().message << "; only a GPU clears memory in the background";
  Device& device = **made;
  const bool gpu = GetParam() == DeviceKind::cuda;
  const int64_t bytes = gpu ? std::min(device.free_bytes() / 2, int64_t{16} << 30) : int64_t{1} << 20;
  const std::vector<std::byte> uploaded(4096, std::byte{0x5A});
  const auto size = static_cast<int64_t>(uploaded.size());

  const auto memory = device.allocate(bytes);
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  device.upload(*memory + bytes - size, uploaded.data(), size);

  const auto read = device.allocate_host(2 * size);
  ASSERT_TRUE(read.ok()) << read.error().message;
  device.copy_out(*read, *memory + bytes - 2 * size, 2 * size);
  device.wait();
  EXPECT_TRUE(std::all_of(*read, *read + size, [](std::byte x) { return x == std::byte{0}; }));
  EXPECT_TRUE(std::equal(uploaded.begin(), uploaded.end(), *read + size));
  device.release(*memory);
  device.release(*read);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceMemory, ::testing::Values(DeviceKind::cpu, DeviceKind::cuda),
                         [](const auto& info) { return std::string(device_name(info.param)); });

}  // namespace
}  // namespace quern
