// How fast attention is: prompts of growing length against this machine's arithmetic, and single tokens over growing
// contexts against its memory bandwidth. Usage: attention_bench [threads]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <numeric>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "ops/attention.h"
#include "tensor/device.h"

namespace quern {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The best of some rounds, after one to warm up.
template <typename Body>
double seconds_of(Body&& body) {
  body();
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double begin = seconds_now();
    body();
    best = std::min(best, seconds_now() - begin);
  }
  return best;
}

#if defined(__x86_64__)
#define QUERN_BENCH_TARGET __attribute__((target("avx2,fma")))
#else
#define QUERN_BENCH_TARGET
#endif

using Eight [[gnu::vector_size(32)]] = float;

/// 12 independent chains of multiply-adds.
QUERN_BENCH_TARGET float multiply_adds(int64_t rounds, float seed) {
  Eight sums[12] = {};
  const Eight factor = Eight{} + seed;
  for (int64_t i = 0; i < rounds; ++i) {
    for (Eight& sum : sums) sum = __builtin_elementwise_fma(sum, factor, factor);
  }
  Eight total{};
  for (const Eight& sum : sums) total += sum;
  return total[0];
}

QUERN_BENCH_TARGET float read_all(const float* memory, int64_t count) {
  Eight sums[4] = {};
  for (int64_t i = 0; i + 32 <= count; i += 32) {
    for (int part = 0; part < 4; ++part) sums[part] += *reinterpret_cast<const Eight*>(memory + i + part * 8);
  }
  return (sums[0] + sums[1] + sums[2] + sums[3])[0];
}

volatile float sink;

ThreadPool& pool_of(Device& device) { return *static_cast<ThreadPool*>(device.queue().native); }

double peak_gflops(Device& device) {
  ThreadPool& pool = pool_of(device);
  constexpr int64_t rounds = 4'000'000;
  const double seconds = seconds_of([&] { pool.run([&](int) { sink = multiply_adds(rounds, 0.5F); }); });
  return static_cast<double>(rounds) * 12 * 8 * 2 * pool.size() / seconds / 1e9;
}

double peak_gigabytes(Device& device) {
  ThreadPool& pool = pool_of(device);
  constexpr int64_t count = int64_t{64} << 20;
  auto* memory = reinterpret_cast<float*>(device.allocate(count * 4).value());
  std::fill_n(memory, count, 1.0F);
  const double seconds = seconds_of([&] {
    pool.parallel_for(count, count / 64,
                      [&](int64_t begin, int64_t end) { sink = read_all(memory + begin, end - begin); });
  });
  device.release(reinterpret_cast<std::byte*>(memory));
  return static_cast<double>(count) * sizeof(float) / seconds / 1e9;
}

struct Shape {
  const char* name;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
};

/// One layer of `length` tokens, several copies so that no cache holds them.
class Layers {
 public:
  Layers(Device& device, const Shape& shape, int32_t length, int32_t copies) : device_(device), shape_(shape) {
    const int32_t pages = (length + 15) / 16;
    kv_.page_bytes = int64_t{2} * 2 * 16 * shape.kv_heads * shape.head_dim;
    const int64_t pool_bytes = kv_.page_bytes * pages * copies;
    kv_.pool = device.allocate(pool_bytes).value();
    arena_memory_ = device.allocate(arena_bytes).value();
    std::fill_n(reinterpret_cast<uint16_t*>(kv_.pool), pool_bytes / 2, uint16_t{0x2E66});  // 0.1
    table_.resize(static_cast<size_t>(pages * copies));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), std::mt19937(1));
    kv_.table = Tensor::dense(reinterpret_cast<std::byte*>(table_.data()), Dtype::i32, copies, pages);
    kv_.heads = shape.kv_heads;
    kv_.head_dim = shape.head_dim;
  }
  ~Layers() {
    device_.release(kv_.pool);
    device_.release(arena_memory_);
  }
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;

  double bytes(int32_t length) const { return 4.0 * length * shape_.kv_heads * shape_.head_dim; }

  /// Seconds of tokens [begin, begin + count) of one copy after the other.
  double seconds(int32_t begin, int32_t count) {
    std::vector<float> q(static_cast<size_t>(count * shape_.heads * shape_.head_dim), 0.1F);
    std::vector<int32_t> starts{0, count};
    std::vector<int32_t> rows{0};
    std::vector<int32_t> positions(static_cast<size_t>(count));
    std::iota(positions.begin(), positions.end(), begin);
    const auto view = [](std::vector<int32_t>& v) {
      return Tensor::dense(reinterpret_cast<std::byte*>(v.data()), Dtype::i32, static_cast<int32_t>(v.size()));
    };
    const Segments segments{view(starts), view(rows), view(positions)};
    const Tensor queries =
        Tensor::dense(reinterpret_cast<std::byte*>(q.data()), Dtype::f32, count, shape_.heads * shape_.head_dim);
    Arena arena(arena_memory_, arena_bytes);
    Exec exec{device_.queue(), arena};
    const int32_t copies = kv_.table.dims[0];
    return seconds_of([&] {
             for (rows[0] = 0; rows[0] < copies; ++rows[0]) {
               const Arena::Scope scope(arena);
               attention(exec, queries, kv_, segments, {.heads = shape_.heads, .scale = 0.125F});
             }
           }) /
           copies;
  }

 private:
  static constexpr int64_t arena_bytes = 64 << 20;
  Device& device_;
  Shape shape_;
  std::byte* arena_memory_ = nullptr;
  std::vector<int32_t> table_;
  PagedKv kv_;
};

void bench(const Shape& shape, Device& device, double gflops, double gigabytes) {
  fmt::print("\n{}: {} heads, {} kv heads, dim {}\n", shape.name, shape.heads, shape.kv_heads, shape.head_dim);
  for (const int32_t length : {128, 512, 2048}) {
    Layers layers(device, shape, length, 2);
    const double seconds = layers.seconds(0, length);
    const double flops = 2.0 * length * (length + 1) * shape.heads * shape.head_dim;
    fmt::print("  prompt  {:6} tokens  {:9.1f} us  {:6.1f} GFLOP/s  {:3.0f} % of peak\n", length, seconds * 1e6,
               flops / seconds / 1e9, 100 * flops / seconds / 1e9 / gflops);
  }
  for (const int32_t length : {128, 512, 2048, 8192, 32768}) {
    const auto copies = static_cast<int32_t>(1 + 1e8 / (4.0 * length * shape.kv_heads * shape.head_dim));
    Layers layers(device, shape, length, copies);
    const double seconds = layers.seconds(length - 1, 1);
    const double rate = layers.bytes(length) / seconds / 1e9;
    fmt::print("  context {:6} tokens  {:9.1f} us  {:6.1f} GB/s     {:3.0f} % of peak\n", length, seconds * 1e6, rate,
               100 * rate / gigabytes);
  }
}

}  // namespace
}  // namespace quern

int main(int argc, char** argv) {
  using namespace quern;
  const auto made = make_device(DeviceKind::cpu, {.threads = argc > 1 ? std::atoi(argv[1]) : 0});
  if (!made) {
    fmt::print(stderr, "{}\n", made.error().message);
    return 1;
  }
  Device& device = **made;
  const double gflops = peak_gflops(device);
  const double gigabytes = peak_gigabytes(device);
  fmt::print("{}: {:.0f} GFLOP/s (256-bit multiply-adds), {:.1f} GB/s read\n", device.description(), gflops, gigabytes);
  bench({"SmolLM2-135M", 9, 3, 64}, device, gflops, gigabytes);
  bench({"Gemma-3-270M", 4, 1, 256}, device, gflops, gigabytes);
  bench({"Llama-3-8B", 32, 8, 128}, device, gflops, gigabytes);
  return 0;
}
