// linear_bench: the matrix products of the default model, and of other formats, beside what the machine can do.
// usage: linear_bench [threads [model | a format's name]]
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

/// Multiply-adds per second of one core: 16-bit pairs into 32 bits, and floats.
__attribute__((target("avx2,fma"))) double peak_products_avx2(bool integers) {
  __m256i ints[10];
  __m256 floats[10];
  for (int i = 0; i < 10; ++i) {
    ints[i] = _mm256_set1_epi32(i);
    floats[i] = _mm256_set1_ps(static_cast<float>(i));
  }
  __m256i pairs = _mm256_set1_epi16(3);
  __m256 value = _mm256_set1_ps(0.5F);
  const double seconds = best_seconds(5, [&]() __attribute__((target("avx2,fma"))) {
    for (int round = 0; round < peak_rounds; ++round) {
      asm volatile("" : "+x"(pairs), "+x"(value));  // so that nothing is computed once for all rounds
      for (int i = 0; i < 10; ++i) {
        if (integers) {
          ints[i] = _mm256_add_epi32(ints[i], _mm256_madd_epi16(pairs, pairs));
          asm volatile("" : "+x"(ints[i]));
        } else {
          floats[i] = _mm256_fmadd_ps(value, value, floats[i]);
        }
      }
    }
  });
  volatile int keep = _mm256_extract_epi32(ints[1], 0) + static_cast<int>(_mm256_cvtss_f32(floats[1]));
  static_cast<void>(keep);
  return peak_rounds * 10.0 * (integers ? 16 : 8) / seconds;
}

__attribute__((target("avx512f,avx512vnni"))) double peak_products_avx512(bool integers) {
  __m512i ints[12];
  __m512 floats[12];
  for (int i = 0; i < 12; ++i) {
    ints[i] = _mm512_set1_epi32(i);
    floats[i] = _mm512_set1_ps(static_cast<float>(i));
  }
  __m512i pairs = _mm512_set1_epi32(0x00030003);
  __m512 value = _mm512_set1_ps(0.5F);
  const double seconds = best_seconds(5, [&]() __attribute__((target("avx512f,avx512vnni"))) {
    for (int round = 0; round < peak_rounds; ++round) {
      asm volatile("" : "+v"(pairs), "+v"(value));
      for (int i = 0; i < 12; ++i) {
        if (integers) {
          ints[i] = _mm512_dpwssd_epi32(ints[i], pairs, pairs);
        } else {
          floats[i] = _mm512_fmadd_ps(value, value, floats[i]);
        }
      }
    }
  });
  volatile int keep = _mm512_cvtsi512_si32(ints[1]) + static_cast<int>(_mm512_cvtss_f32(floats[1]));
  static_cast<void>(keep);
  return peak_rounds * 12.0 * (integers ? 32 : 16) / seconds;
}
#endif

double peak_products(bool integers) {
#if defined(__x86_64__)
  if (isa_in_force() == Isa::avx512) return peak_products_avx512(integers);
  if (isa_in_force() == Isa::avx2) return peak_products_avx2(integers);
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
  explicit Ladder(int threads)
      : device_(make_device(DeviceKind::cpu, {threads}).value()),
        pool_(static_cast<ThreadPool*>(device_->queue().native)) {
    constexpr int64_t activation_bytes = int64_t{192} << 20;
    memory_ = device_->allocate(activation_bytes).value();
    arena_.emplace(memory_, activation_bytes);
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
      const int repeats = count <= 16 ? 12 : 4;
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
      const Tensor x = arena_->tensor(Dtype::f32, tokens, matrix.cols);
      if (tokens != filled_tokens_ || matrix.cols != filled_cols_) fill(x);
      filled_tokens_ = tokens;
      filled_cols_ = matrix.cols;
      linear(exec, x, matrix);
    }
  }

  static void fill(Tensor x) {
    for (int64_t i = 0; i < x.elements(); ++i) x.as<float>()[i] = static_cast<float>(i * 7919 % 2001) * 1e-3F - 1.0F;
  }

  std::unique_ptr<Device> device_;
  ThreadPool* pool_;
  std::byte* memory_ = nullptr;
  std::optional<Arena> arena_;
  double bandwidth_ = 0;
  double integer_peak_ = 0;
  double float_peak_ = 0;
  int filled_tokens_ = 0;
  int filled_cols_ = 0;
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
  quern::Ladder ladder(threads);
  if (only.empty() || only == "model") quern::default_model(ladder);
  quern::for_each_format([&]<typename Format>(Format) {
    if (only.empty() || only == Format::name) quern::one_format(ladder, Format::id);
  });
  return 0;
}
