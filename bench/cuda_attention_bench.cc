// How fast attention is on a GPU: one token of many sequences against the memory's read bandwidth, and whole prompts
// against the matrix units. Chains of launches in a captured graph, over more layers than the L2 cache holds.
// Usage: cuda_attention_bench [invariant] [f8] [decode] [prompts]
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "formats/half.h"
#include "ops/attention.h"
#include "ops/copy_pages.h"
#include "ops/read_all.h"
#include "tensor/device.h"

namespace quern {
namespace {

constexpr int32_t heads = 32;
constexpr int32_t kv_heads = 8;
constexpr int32_t head_dim = 128;
constexpr int32_t page_tokens = 16;
constexpr int64_t page_elements = int64_t{2} * page_tokens * kv_heads * head_dim;
constexpr int64_t pool_pages = int64_t{18} << 14;   // 18 GiB of bf16
constexpr int64_t cold_bytes = int64_t{512} << 20;  // enough that nothing is left in a cache
constexpr int64_t queries_bytes = int64_t{128} << 20;
constexpr int64_t scratch_bytes = int64_t{1} << 30;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The memory of all measurements.
class Bench {
 public:
  /// `pages`: bf16 or f8
  Bench(Device& device, Dtype pages)
      : device_(device),
        pages_(pages),
        page_bytes_(page_elements * dtype_bytes(pages)),
        pool_(device.allocate(pool_pages * page_bytes_).value()),
        scratch_(device.allocate(scratch_bytes).value()) {
    fill();
    measure_bandwidth();
  }
  ~Bench() {
    device_.release(pool_);
    device_.release(scratch_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  double read_bandwidth() const { return read_bandwidth_; }

  void decode(int32_t batch, int32_t context) {
    const Step step = make_step(batch, context, 1);
    const double seconds = seconds_of(step);
    const double rate = static_cast<double>(step.pages * page_bytes_) / seconds / 1e12;
    fmt::print("  {:4} x {:5}  {:9.1f} us  {:5.2f} TB/s  {:3.0f} %\n", batch, context, seconds * 1e6, rate,
               100 * rate / read_bandwidth_);
  }
  void prompt(int32_t batch, int32_t length) {
    const double seconds = seconds_of(make_step(batch, length, length));
    const double flops = 2.0 * batch * heads * head_dim * static_cast<double>(length) * length;
    fmt::print("  {:4} x {:5}  {:9.1f} us  {:5.0f} TFLOP/s\n", batch, length, seconds * 1e6, flops / seconds / 1e12);
  }

 private:
  struct Step {
    Tensor q;
    Segments segments;
    Tensor table;
    int64_t pages = 0;  // of all sequences
    int64_t scratch_used = 0;
  };

  Tensor on_device(Arena& arena, const std::vector<int32_t>& values) {
    const Tensor result = arena.tensor(Dtype::i32, static_cast<int32_t>(values.size()));
    device_.upload(result.data, reinterpret_cast<const std::byte*>(values.data()),
                   static_cast<int64_t>(values.size() * sizeof(int32_t)));
    return result;
  }

  /// Random numbers in every page, and in the queries.
  void fill() {
    constexpr int64_t some = 1024;
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> queries(1 << 20);
    for (uint16_t& value : queries) value = f32_to_bf16(normal(generator));
    std::vector<std::byte> values(queries.size() * 2);
    std::memcpy(values.data(), queries.data(), values.size());
    if (pages_ == Dtype::f8) {
      for (std::byte& value : values) value = static_cast<std::byte>(f32_to_e4m3(normal(generator)));
    }
    const auto block = static_cast<int64_t>(values.size());
    for (int64_t at = 0; at < some * page_bytes_; at += block) device_.upload(pool_ + at, values.data(), block);
    for (int64_t at = 0; at < queries_bytes; at += block) {
      device_.upload(scratch_ + at, reinterpret_cast<const std::byte*>(queries.data()), block);
    }
    std::vector<int32_t> from(static_cast<size_t>(some));
    std::iota(from.begin(), from.end(), 0);
    for (int64_t first = some; first < pool_pages; first += some) {
      std::vector<int32_t> to(static_cast<size_t>(some));
      std::iota(to.begin(), to.end(), static_cast<int32_t>(first));
      Arena arena(scratch_ + queries_bytes, scratch_bytes - queries_bytes);
      Exec exec{device_.queue(), arena};
      copy_pages(exec, pool_, page_bytes_, on_device(arena, from), on_device(arena, to));
      device_.wait();
    }
  }

  /// TB/s of a kernel that does nothing but read.
  void measure_bandwidth() {
    constexpr int64_t bytes = int64_t{4} << 30;
    Arena arena(scratch_ + queries_bytes, scratch_bytes - queries_bytes);
    Exec exec{device_.queue(), arena};
    const Tensor sums = arena.tensor(Dtype::i32, 1024);
    const Tensor words = Tensor::dense(pool_, Dtype::i32, static_cast<int32_t>(bytes / 4));
    for (int round = 0; round < 4; ++round) {
      const double begin = seconds_now();
      for (int i = 0; i < 8; ++i) read_all(exec, words, sums);
      device_.wait();
      read_bandwidth_ = std::max(read_bandwidth_, 8.0 * static_cast<double>(bytes) / (seconds_now() - begin) / 1e12);
    }
  }

  /// The last `count` tokens of `batch` sequences of `length` tokens.
  Step make_step(int32_t batch, int32_t length, int32_t count) {
    Step step;
    Arena arena(scratch_, scratch_bytes);
    step.q = arena.tensor(Dtype::bf16, batch * count, heads * head_dim);
    std::vector<int32_t> starts{0}, rows, positions;
    for (int32_t i = 0; i < batch; ++i) {
      rows.push_back(i);
      for (int32_t t = length - count; t < length; ++t) positions.push_back(t);
      starts.push_back(static_cast<int32_t>(positions.size()));
    }
    const int32_t pages = (length + page_tokens - 1) / page_tokens;
    step.pages = int64_t{batch} * pages;
    std::vector<int32_t> table(static_cast<size_t>(step.pages));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(1));
    step.segments = {on_device(arena, starts), on_device(arena, rows), on_device(arena, positions)};
    const Tensor flat = on_device(arena, table);
    step.table = Tensor::dense(flat.data, Dtype::i32, batch, pages);
    step.scratch_used = arena.used();
    return step;
  }

  /// Of one launch among many.
  double seconds_of(const Step& step) {
    const auto layers =
        static_cast<int>(std::min(pool_pages / step.pages, 1 + cold_bytes / (step.pages * page_bytes_)));
    const int launches = std::max(step.q.dims[0] > 4096 ? 4 : 32, layers);
    const auto work = [&](Queue queue) {
      for (int i = 0; i < launches; ++i) {
        PagedKv kv;
        kv.pool = pool_ + (i % layers) * step.pages * page_bytes_;
        kv.page_bytes = page_bytes_;
        kv.table = step.table;
        kv.page_tokens = page_tokens;
        kv.heads = kv_heads;
        kv.head_dim = head_dim;
        kv.dtype = pages_;
        Arena arena(scratch_ + step.scratch_used, scratch_bytes - step.scratch_used);
        Exec exec{queue, arena};
        exec.activations = Dtype::bf16;
        attention(exec, step.q, kv, step.segments, {.heads = heads, .scale = 0.088F});
      }
    };
    const auto graph = device_.capture(work);
    graph->launch();
    device_.wait();
    double best = 1e9;
    for (int round = 0; round < 4; ++round) {
      const double begin = seconds_now();
      int replays = 0;
      do {
        for (int i = 0; i < 4; ++i) graph->launch();
        device_.wait();
        replays += 4;
      } while (seconds_now() - begin < 0.02);
      best = std::min(best, (seconds_now() - begin) / replays / launches);
    }
    return best;
  }

  Device& device_;
  Dtype pages_;
  int64_t page_bytes_;
  double read_bandwidth_ = 0;
  std::byte* pool_;
  std::byte* scratch_;
};

void run(Device& device, Dtype pages, bool decode, bool prompts) {
  Bench bench(device, pages);
  fmt::print("{}, {:.2f} TB/s; {} heads, {} kv heads, dim {}, keys and values of {}\n", device.description(),
             bench.read_bandwidth(), heads, kv_heads, head_dim, pages == Dtype::f8 ? "f8" : "bf16");
  if (decode) {
    fmt::print("one token of sequences\n");
    for (const int32_t batch : {1, 8, 64, 256}) {
      for (const int32_t context : {512, 1024, 1536, 4096, 16384}) bench.decode(batch, context);
    }
  }
  if (prompts) {
    fmt::print("prompts\n");
    for (const int32_t length : {512, 1024, 2048, 4096, 8192}) bench.prompt(1, length);
    bench.prompt(8, 1024);
  }
}

}  // namespace
}  // namespace quern

int main(int argc, char** argv) {
  using namespace quern;
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const auto says = [&](std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  const auto made = make_device(DeviceKind::cuda, {.batch_invariant = says("invariant")});
  if (!made) {
    fmt::print(stderr, "{}\n", made.error().message);
    return 1;
  }
  run(**made, says("f8") ? Dtype::f8 : Dtype::bf16, says("decode") || !says("prompts"),
      says("prompts") || !says("decode"));
  return 0;
}
