// How fast `linear` is on a GPU, on the matrices of a model of 8 billion parameters: time of one launch among many in a
// captured graph, over copies of the weight that no cache holds, against the memory's read bandwidth.
// Usage: cuda_linear_bench [invariant] [few | many] [format...]; few: to eight tokens only; many: more than 128.
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/list.h"
#include "ops/gated_linear.h"
#include "ops/linear.h"
#include "ops/read_all.h"
#include "ops/rms_norm.h"
#include "tensor/device.h"

namespace quern {
namespace {

constexpr int64_t pool_bytes = int64_t{4} << 30;
constexpr int64_t arena_bytes = int64_t{3} << 30;
constexpr int64_t cold_bytes = int64_t{1200} << 20;  // of copies: nothing is left in a cache
constexpr int32_t most_tokens = 8448;
constexpr int32_t most_cols = 14336;
constexpr int token_counts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
constexpr size_t few_counts = 4;
constexpr int many_counts[] = {160, 256, 512, 1024, 2048, 8448};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Shape {
  std::string_view name;
  int32_t rows = 0;
  int32_t cols = 0;
};
constexpr Shape qkv{"qkv", 6144, 4096};
constexpr Shape out{"out", 4096, 4096};
constexpr Shape gate_up{"gate_up", 28672, 4096};
constexpr Shape down{"down", 4096, 14336};
constexpr Shape head{"head", 128256, 4096};

class Bench {
 public:
  Bench(Device& device, std::span<const int> counts)
      : device_(device),
        counts_(counts),
        pool_(device.allocate(pool_bytes).value()),
        memory_(device.allocate(arena_bytes).value()),
        arena_(memory_, arena_bytes) {
    x_ = arena_.tensor(Dtype::bf16, most_tokens, most_cols);
    stream_ = arena_.tensor(Dtype::f32, most_tokens, 4096);
    norm_ = arena_.tensor(Dtype::f32, 4096);
    const std::vector<std::byte> values = pattern(FormatId::bf16, 4096, 1024, 1.0F);
    repeat(x_.data, x_.elements() * 2, values);
    repeat(norm_.data, norm_.elements() * 4, values);
    scale_ = arena_.tensor(Dtype::f32, head.rows);
    repeat(scale_.data, scale_.elements() * 4, values);
    fill(FormatId::bf16, 4096);
    measure_bandwidth();
    fmt::print("{}, reads {:.2f} TB/s\n", device.description(), bandwidth_);
  }
  ~Bench() {
    device_.release(pool_);
    device_.release(memory_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void climb(FormatId format) {
    fmt::print("{}, us; % of bandwidth to 64 tokens, then TFLOP/s\n{:>14}", format_info(format).name, "tokens");
    for (const int tokens : counts_) fmt::print("{:>8}", tokens);
    fmt::print("\n");
    fill(format, 4096);
    for (const Shape& shape : {out, qkv, gate_up}) product(format, shape);
    if (counts_.back() <= 512) product(format, head);
    fill(format, 14336);
    product(format, down);
    layers(format);
  }

 private:
  /// Packed rows of random values.
  static std::vector<std::byte> pattern(FormatId format, int32_t cols, int32_t rows, float spread) {
    const FormatSizes sizes = format_info(format);
    const auto groups = static_cast<size_t>(rows) * static_cast<size_t>(cols / sizes.group);
    std::vector<std::byte> data(groups * static_cast<size_t>(sizes.data_bytes));
    std::vector<std::byte> scales(groups * static_cast<size_t>(sizes.scale_bytes));
    std::vector<float> values(static_cast<size_t>(sizes.group));
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0F, spread);
    visit_format(format, [&]<typename Format>(Format) {
      for (size_t group = 0; group < groups; ++group) {
        for (float& value : values) value = normal(random);
        Format::encode(values.data(), data.data() + group * Format::data_bytes,
                       scales.data() + group * Format::scale_bytes);
      }
    });
    std::vector<std::byte> packed(static_cast<size_t>(packed_bytes(DeviceKind::cuda, format, rows, cols)));
    pack_panels(DeviceKind::cuda, packed.data(), {format, Layout::rows, rows, cols, data.data(), scales.data()}, 0,
                rows);
    return packed;
  }

  void repeat(std::byte* to, int64_t bytes, const std::vector<std::byte>& values) {
    const auto size = static_cast<int64_t>(values.size());
    for (int64_t at = 0; at < bytes; at += size) device_.upload(to + at, values.data(), std::min(size, bytes - at));
  }

  void fill(FormatId format, int32_t cols) { repeat(pool_, pool_bytes, pattern(format, cols, 512, 0.02F)); }

  void measure_bandwidth() {
    Exec exec{device_.queue(), arena_};
    const Arena::Scope scope(arena_);
    const Tensor sums = arena_.tensor(Dtype::i32, 1024);
    const Tensor words = Tensor::dense(pool_, Dtype::i32, static_cast<int32_t>(pool_bytes / 4));
    for (int round = 0; round < 4; ++round) {
      const double begin = seconds_now();
      for (int i = 0; i < 4; ++i) read_all(exec, words, sums);
      device_.wait();
      bandwidth_ = std::max(bandwidth_, 4.0 * static_cast<double>(pool_bytes) / (seconds_now() - begin) / 1e12);
    }
  }

  static int64_t bytes_of(FormatId format, const Shape& shape) {
    return packed_bytes(DeviceKind::cuda, format, shape.rows, shape.cols);
  }
  Matrix matrix_at(std::byte* data, FormatId format, const Shape& shape) const {
    Matrix matrix;
    matrix.parts[0] = {format, Layout::packed, shape.rows, shape.cols, data, nullptr};
    matrix.count = 1;
    matrix.rows = shape.rows;
    matrix.cols = shape.cols;
    if (format == FormatId::f8) matrix.scale = scale_.rows(0, shape.rows);
    return matrix;
  }

  Exec exec_in(Queue queue) {
    Exec exec{queue, arena_};
    exec.activations = Dtype::bf16;
    return exec;
  }

  /// Of one of `launches` that `work` queues.
  double seconds_of(int launches, const std::function<void(Queue)>& work) {
    work(device_.queue());
    device_.wait();
    const auto graph = device_.capture(work);
    graph->launch();
    device_.wait();
    double best = 1e9;
    for (int round = 0; round < 3; ++round) {
      const double begin = seconds_now();
      graph->launch();
      graph->launch();
      device_.wait();
      best = std::min(best, (seconds_now() - begin) / 2 / launches);
    }
    return best;
  }

  void product(FormatId format, const Shape& shape) {
    const int64_t bytes = bytes_of(format, shape);
    const auto copies = static_cast<int>(std::min(pool_bytes / bytes, 1 + cold_bytes / bytes));
    const int all_launches = shape.rows > 100000 ? 8 : std::max(64, copies);
    std::string second = fmt::format("{:>8}{:>3} MB", "", bytes / 1000000);
    fmt::print("{:>8}{:>6}", shape.name, "");
    for (const int tokens : counts_) {
      const int launches = tokens > 512 ? 16 : all_launches;
      const double seconds = seconds_of(launches, [&](Queue queue) {
        Exec exec = exec_in(queue);
        for (int i = 0; i < launches; ++i) {
          const Arena::Scope scope(arena_);
          linear(exec, x_.rows(0, tokens).columns(0, shape.cols), matrix_at(pool_ + i % copies * bytes, format, shape));
        }
      });
      const double flops = 2.0 * shape.rows * shape.cols * tokens / seconds / 1e12;
      const double share = 100 * static_cast<double>(bytes) / seconds / 1e12 / bandwidth_;
      fmt::print("{:8.1f}", seconds * 1e6);
      second += fmt::format("{:8.0f}", tokens <= 64 ? share : flops);
    }
    fmt::print("\n{}\n", second);
  }

  /// The products of layers with the operations between them, but attention.
  void layers(FormatId format) {
    const int64_t bytes = bytes_of(format, qkv) + bytes_of(format, out) + bytes_of(format, gate_up);
    const int64_t all = bytes + bytes_of(format, down);
    const auto copies = static_cast<int>(std::min(pool_bytes / all, 1 + cold_bytes / all));
    const int all_launches = 4 * copies;
    std::string second = fmt::format("{:>8}{:>3} MB", "", all / 1000000);
    fmt::print("{:>8}{:>6}", "layer", "");
    for (const int tokens : counts_) {
      const int launches = tokens > 512 ? copies : all_launches;
      const double seconds = seconds_of(launches, [&](Queue queue) {
        for (int i = 0; i < launches; ++i) layer(exec_in(queue), format, tokens, pool_ + i % copies * all);
      });
      fmt::print("{:8.1f}", seconds * 1e6);
      const double flops = 2.0 * tokens * (6144 + 4096 + 28672 + 14336) * 4096 / seconds / 1e12;
      const double share = 100 * static_cast<double>(all) / seconds / 1e12 / bandwidth_;
      second += fmt::format("{:8.0f}", tokens <= 64 ? share : flops);
    }
    fmt::print("\n{}\n", second);
  }

  void layer(Exec exec, FormatId format, int32_t tokens, std::byte* weights) {
    const auto next = [&](const Shape& shape) {
      const Matrix matrix = matrix_at(weights, format, shape);
      weights += bytes_of(format, shape);
      return matrix;
    };
    const Arena::Scope scope(arena_);
    const Tensor stream = stream_.rows(0, tokens);
    const Matrix last = next(down);
    linear(exec, rms_norm(exec, stream, norm_, 1e-5F), next(qkv));
    linear_into(exec, stream, x_.rows(0, tokens).columns(0, 4096), next(out), true);
    const Tensor both = linear(exec, rms_norm(exec, stream, norm_, 1e-5F), next(gate_up));
    gated_linear_into(exec, stream, both, Activation::silu, last, true);
  }

  Device& device_;
  std::span<const int> counts_;
  std::byte* pool_;
  std::byte* memory_;
  Arena arena_;
  Tensor x_, stream_, norm_, scale_;
  double bandwidth_ = 0;
};

bool run(int argc, char** argv) {
  std::vector<std::string_view> words(argv + 1, argv + argc);
  const bool invariant = std::erase(words, "invariant") > 0;
  std::span<const int> counts = token_counts;
  if (std::erase(words, "few") > 0) counts = counts.first(few_counts);
  if (std::erase(words, "many") > 0) counts = many_counts;
  if (words.empty()) words = {"bf16", "q4_0", "q4_k"};
  const auto made = make_device(DeviceKind::cuda, {.batch_invariant = invariant});
  if (!made) {
    fmt::print(stderr, "{}\n", made.error().message);
    return false;
  }
  Bench bench(**made, counts);
  for_each_format([&]<typename Format>(Format) {
    if (std::find(words.begin(), words.end(), Format::name) != words.end()) bench.climb(Format::id);
  });
  return true;
}

}  // namespace
}  // namespace quern

int main(int argc, char** argv) { return quern::run(argc, argv) ? 0 : 1; }
