// linear_bench: the matrix products of the default model, and of other formats, beside what the machine can do.
// usage: linear_bench [threads [model | a format's name [tokens]]]
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "formats/list.h"
#include "ops/linear.h"
#include "tensor/device.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quern {
namespace {

constexpr int most_tokens = 512;
constexpr int most_cols = 2048;
constexpr int64_t cold_bytes = int64_t{160} << 20;  // more than any cache here: weights come from memory

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The best of several runs: what the machine does when nobody disturbs it.
double best_seconds(int repeats, const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) best = std::min(best, seconds_of(body));
  return best;
}

/// Reads of all workers together, bytes per second.
double read_bandwidth(ThreadPool& pool, const std::byte* memory, int64_t bytes) {
  std::vector<uint64_t> sums(static_cast<size_t>(pool.size()) * 8);
  const double seconds = best_seconds(10, [&] {
    pool.run([&](int worker) {
      const int64_t share = bytes / pool.size() / 256 * 256;
      const std::byte* from = memory + worker * share;
      using Words [[gnu::vector_size(64)]] = uint64_t;
      Words sum[4] = {};
      for (int64_t at = 0; at < share; at += 256) {
        for (int i = 0; i < 4; ++i) {
          Words words;
          std::memcpy(&words, from + at + 64 * i, 64);
          sum[i] ^= words;
        }
      }
      sums[static_cast<size_t>(worker) * 8] = (sum[0] ^ sum[1] ^ sum[2] ^ sum[3])[0];
    });
  });
  volatile uint64_t keep = sums[0];
  static_cast<void>(keep);
  return static_cast<double>(bytes) / seconds;
}

#if defined(__x86_64__)
constexpr int peak_rounds = 4'000'000;

/// Multiply-adds per second of one core: 16-bit pairs into 32 bits, or floats. In assembler, so that all of it is done.
#define QUERN_TEN(step, type)                                                                                     \
  step(0, type) step(1, type) step(2, type) step(3, type) step(4, type) step(5, type) step(6, type) step(7, type) \
      step(8, type) step(9, type)
#define QUERN_AVX2_PAIRS(i, type) \
  asm volatile("vpmaddwd %1, %1, %%ymm15\n vpaddd %%ymm15, %0, %0" : "+x"(sums[i]) : "x"(value) : "xmm15");
#define QUERN_FLOATS(i, type) asm volatile("vfmadd231ps %1, %1, %0" : "+" type(sums[i]) : type(value));
#define QUERN_AVX512_PAIRS(i, type) asm volatile("vpdpwssd %1, %1, %0" : "+v"(sums[i]) : "v"(value));

template <typename Rounds>
double products_per_second(double in_a_round, Rounds&& rounds) {
  return peak_rounds * in_a_round / best_seconds(5, rounds);
}

__attribute__((target("avx2,fma"))) void avx2_pairs() {
  __m256i sums[10] = {};
  const __m256i value = {};
  for (int round = 0; round < peak_rounds; ++round) {
    QUERN_TEN(QUERN_AVX2_PAIRS, "x")
  }
}
__attribute__((target("avx2,fma"))) void avx2_floats() {
  __m256 sums[10] = {};
  const __m256 value = {};
  for (int round = 0; round < peak_rounds; ++round) {
    QUERN_TEN(QUERN_FLOATS, "x")
  }
}
__attribute__((target("avx512f,avx512vnni"))) void avx512_pairs() {
  __m512i sums[10] = {};
  const __m512i value = {};
  for (int round = 0; round < peak_rounds; ++round) {
    QUERN_TEN(QUERN_AVX512_PAIRS, "v")
  }
}
__attribute__((target("avx512f"))) void avx512_floats() {
  __m512 sums[10] = {};
  const __m512 value = {};
  for (int round = 0; round < peak_rounds; ++round) {
    QUERN_TEN(QUERN_FLOATS, "v")
  }
}
#undef QUERN_TEN
#undef QUERN_AVX2_PAIRS
#undef QUERN_FLOATS
#undef QUERN_AVX512_PAIRS
#endif

double peak_products(bool integers) {
#if defined(__x86_64__)
  if (isa_in_force() == Isa::avx512)
    return products_per_second(integers ? 320 : 160, integers ? avx512_pairs : avx512_floats);
  if (isa_in_force() == Isa::avx2) return products_per_second(integers ? 160 : 80, integers ? avx2_pairs : avx2_floats);
#endif
  static_cast<void>(integers);
  return 0.0;
}

struct Part {
  FormatId format = FormatId::f32;
  int32_t rows = 0;
};

/// Packed weights of plausible values, copies of one pair of panels.
Weight make_weight(Device& device, FormatId format, int32_t rows, int32_t cols) {
  const int32_t some = 2 * panel_rows(DeviceKind::cpu, format);
  const FormatSizes sizes = format_info(format);
  const auto groups = static_cast<size_t>(some) * static_cast<size_t>(cols / sizes.group);
  std::vector<std::byte> data(groups * static_cast<size_t>(sizes.data_bytes));
  std::vector<std::byte> scales(groups * static_cast<size_t>(sizes.scale_bytes));
  std::vector<float> values(static_cast<size_t>(sizes.group));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  visit_format(format, [&]<typename Format>(Format) {
    for (size_t group = 0; group < groups; ++group) {
      for (float& value : values) value = normal(random);
      Format::encode(values.data(), data.data() + group * Format::data_bytes,
                     scales.data() + group * Format::scale_bytes);
    }
  });
  const int64_t bytes = packed_bytes(DeviceKind::cpu, format, rows, cols);
  std::byte* const packed = device.allocate(bytes).value();
  pack_panels(DeviceKind::cpu, packed, {format, Layout::rows, some, cols, data.data(), scales.data()}, 0, some);
  const int64_t pattern = packed_bytes(DeviceKind::cpu, format, some, cols);
  for (int64_t at = pattern; at < bytes; at += pattern) {
    std::memcpy(packed + at, packed, static_cast<size_t>(std::min(pattern, bytes - at)));
  }
  return {format, Layout::packed, rows, cols, packed, nullptr};
}

int64_t bytes_of(const Matrix& matrix) {
  int64_t bytes = 0;
  for (int i = 0; i < matrix.count; ++i) {
    bytes += packed_bytes(DeviceKind::cpu, matrix.parts[i].format, matrix.parts[i].rows, matrix.cols);
  }
  return bytes;
}

class Ladder {
 public:
  Ladder(int threads, int only_tokens)
      : only_tokens_(only_tokens),
        device_(make_device(DeviceKind::cpu, {threads}).value()),
        pool_(static_cast<ThreadPool*>(device_->queue().native)) {
    constexpr int64_t activation_bytes = int64_t{192} << 20;
    memory_ = device_->allocate(activation_bytes).value();
    arena_.emplace(memory_, activation_bytes);
    x_ = arena_->tensor(Dtype::f32, most_tokens, most_cols);
    for (int64_t i = 0; i < x_.elements(); ++i) x_.as<float>()[i] = static_cast<float>(i * 7919 % 2001) * 1e-3F - 1.0F;
    std::byte* const cold = device_->allocate(cold_bytes).value();
    std::memset(cold, 1, cold_bytes);
    bandwidth_ = read_bandwidth(*pool_, cold, cold_bytes);
    device_->release(cold);
    integer_peak_ = peak_products(true) * threads;
    float_peak_ = peak_products(false) * threads;
    fmt::print("{}: reads {:.1f} GB/s, {:.0f} G products/s of 16 bits, {:.0f} of floats\n", device_->description(),
               bandwidth_ / 1e9, integer_peak_ / 1e9, float_peak_ / 1e9);
  }

  Matrix matrix(std::initializer_list<Part> parts, int32_t cols) {
    Matrix out;
    out.cols = cols;
    for (const Part& part : parts) {
      out.parts[out.count++] = make_weight(*device_, part.format, part.rows, cols);
      out.rows += part.rows;
    }
    return out;
  }

  void release(const Matrix& matrix) {
    for (int i = 0; i < matrix.count; ++i) device_->release(matrix.parts[i].data);
  }

  /// All matrices once, for each number of tokens.
  void climb(std::string_view title, const std::vector<Matrix>& matrices, std::initializer_list<int> tokens) {
    int64_t bytes = 0;
    double products = 0;
    bool integers = false;
    for (const Matrix& matrix : matrices) {
      bytes += bytes_of(matrix);
      products += double{1} * matrix.rows * matrix.cols;
      integers = integers || format_info(matrix.parts[0].format).scale_bytes > 0;
    }
    for (const int count : tokens) {
      if (only_tokens_ != 0 && count != only_tokens_) continue;
      const int repeats = only_tokens_ != 0 ? 100 : count <= 16 ? 12 : 4;
      const double seconds = best_seconds(repeats, [&] { run(matrices, count); });
      fmt::print(
          "{:28} {:4} tokens {:9.3f} ms {:9.1f} tokens/s {:6.1f} GB/s = {:3.0f} % {:6.0f} G products/s = {:3.0f} %\n",
          title, count, seconds * 1e3, count / seconds, static_cast<double>(bytes) / seconds / 1e9,
          100 * static_cast<double>(bytes) / seconds / bandwidth_, products * count / seconds / 1e9,
          100 * products * count / seconds / (integers ? integer_peak_ : float_peak_));
    }
  }

 private:
  void run(const std::vector<Matrix>& matrices, int tokens) {
    Exec exec{device_->queue(), *arena_};
    for (const Matrix& matrix : matrices) {
      const Arena::Scope scope(*arena_);
      linear(exec, x_.rows(0, tokens).columns(0, matrix.cols), matrix);
    }
  }

  int only_tokens_;
  std::unique_ptr<Device> device_;
  ThreadPool* pool_;
  std::byte* memory_ = nullptr;
  std::optional<Arena> arena_;
  double bandwidth_ = 0;
  double integer_peak_ = 0;
  double float_peak_ = 0;
  Tensor x_;
};

/// One forward pass of SmolLM2-135M without attention.
void default_model(Ladder& ladder) {
  constexpr FormatId q = FormatId::q4_1;
  std::vector<Matrix> layers;
  for (int layer = 0; layer < 30; ++layer) {
    layers.push_back(ladder.matrix({{q, 576}, {q, 192}, {q, 192}}, 576));
    layers.push_back(ladder.matrix({{q, 576}}, 576));
    layers.push_back(ladder.matrix({{q, 1536}, {q, 1536}}, 576));
    layers.push_back(ladder.matrix({{q, 576}}, 1536));
  }
  const std::vector<Matrix> head = {ladder.matrix({{FormatId::q8_0, 49152}}, 576)};
  ladder.climb("SmolLM2 layers, q4_1", layers, {1, 2, 3, 4, 5, 6, 8, 12, 16, 64, 512});
  ladder.climb("SmolLM2 head, q8_0", head, {1, 2, 4, 8, 16});
  for (const Matrix& matrix : layers) ladder.release(matrix);
  ladder.release(head[0]);
}

void one_format(Ladder& ladder, FormatId format) {
  constexpr int32_t rows = 2048;
  constexpr int32_t cols = 2048;
  std::vector<Matrix> copies = {ladder.matrix({{format, rows}}, cols)};
  while (bytes_of(copies[0]) * static_cast<int64_t>(copies.size()) < cold_bytes / 2) {
    copies.push_back(ladder.matrix({{format, rows}}, cols));
  }
  ladder.climb(fmt::format("{} {} x {}, {} copies", format_info(format).name, rows, cols, copies.size()), copies,
               {1, 4, 8, 128});
  for (const Matrix& matrix : copies) ladder.release(matrix);
}

}  // namespace
}  // namespace quern

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : quern::usable_cores();
  const std::string_view only = argc > 2 ? argv[2] : "";
  quern::Ladder ladder(threads, argc > 3 ? std::atoi(argv[3]) : 0);
  if (only.empty() || only == "model") quern::default_model(ladder);
  quern::for_each_format([&]<typename Format>(Format) {
    if (only.empty() || only == Format::name) quern::one_format(ladder, Format::id);
  });
  return 0;
}
