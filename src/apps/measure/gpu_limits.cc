// What a GPU can do at most: reading 8 GiB, and the library's largest matrix product.
#include <algorithm>
#include <random>
#include <vector>

#include "apps/loader.h"
#include "apps/measure/machine_limits.h"
#include "base/clock.h"
#include "ops/linear.h"
#include "ops/read_all.h"

namespace quern {
namespace {

constexpr int passes = 10;

/// Random bytes of numbers near one in both 16-bit types, everywhere: the power that zeros save would flatter.
void fill(Device& device, std::byte* memory, int64_t bytes) {
  std::mt19937 random(3);
  std::vector<uint16_t> block(size_t{8} << 20);
  for (uint16_t& word : block) word = static_cast<uint16_t>(0x3C00U | (random() & 0x83FFU));
  const auto block_bytes = static_cast<int64_t>(block.size() * sizeof(uint16_t));
  for (int64_t at = 0; at < bytes; at += block_bytes) {
    device.upload(memory + at, reinterpret_cast<const std::byte*>(block.data()), std::min(block_bytes, bytes - at));
  }
}

template <typename Work>
double best_seconds(Device& device, Work&& work) {
  double best = 1e9;
  for (int pass = 0; pass < passes; ++pass) {
    const int64_t start = now_us();
    work();
    device.wait();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

}  // namespace

Result<MachineLimits> measure_gpu_limits(Device& device) {
  constexpr int64_t bytes = int64_t{8} << 30;
  constexpr int32_t size = 8192;
  ASSIGN_OR_RETURN(const DeviceMemory memory, DeviceMemory::allocate(device, bytes));
  fill(device, memory.data(), bytes);
  Arena arena(memory.data(), bytes);
  Exec exec{device.queue(), arena};
  exec.activations = Dtype::bf16;
  MachineLimits limits;
  const Tensor sums = arena.tensor(Dtype::i32, 1024);
  const auto words = static_cast<int32_t>((bytes - 4096) / 4 / 4 * 4);
  const Tensor all = Tensor::dense(memory.data() + 4096, Dtype::i32, words / 4 * 4);
  limits.read_bytes_per_second =
      static_cast<double>(bytes - 4096) / best_seconds(device, [&] { read_all(exec, all, sums); });
  Matrix matrix;
  matrix.count = 1;
  matrix.rows = size;
  matrix.cols = size;
  matrix.parts[0] = {FormatId::bf16, Layout::packed, size, size, memory.data() + (int64_t{1} << 30), nullptr};
  const Tensor x = Tensor::dense(memory.data() + (int64_t{2} << 30), Dtype::bf16, size, size);
  const double operations = 2.0 * size * size * size;
  limits.flops_per_second = operations / best_seconds(device, [&] {
                              const Arena::Scope scope(arena);
                              linear(exec, x, matrix);
                            });
  return limits;
}

}  // namespace quern
