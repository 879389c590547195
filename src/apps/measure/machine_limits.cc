#include "apps/measure/machine_limits.h"

#include <algorithm>
#include <cstdint>
#include <sys/mman.h>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quern {
namespace {

volatile uint64_t sink;

/// Four streams at once, each fetched ahead, so that the memory is never waited for.
uint64_t read_block(const uint64_t* words, int64_t count) {
  constexpr int streams = 4;
  const int64_t each = count / streams / 8 * 8;
  uint64_t sums[8] = {};
  for (int64_t i = 0; i < each; i += 8) {
    for (int stream = 0; stream < streams; ++stream) {
      const uint64_t* line = words + stream * each + i;
      __builtin_prefetch(line + 128);
      for (int j = 0; j < 8; ++j) sums[j] += line[j];
    }
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

double measure_reads(ThreadPool& pool, int64_t bytes) {
  const int64_t words_each = bytes / 8 / pool.size();
  const int64_t mapped = bytes + (int64_t{4} << 20);
  void* memory = mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0.0;
  madvise(memory, static_cast<size_t>(mapped), MADV_HUGEPAGE);
  auto* words = static_cast<uint64_t*>(memory);
  pool.run([&](int worker) { std::fill_n(words + worker * words_each, words_each, uint64_t{1}); });
  double best = 0.0;
  for (int pass = 0; pass < 15; ++pass) {
    const int64_t start = now_us();
    pool.run([&](int worker) { sink = read_block(words + worker * words_each, words_each); });
    best = std::max(best, static_cast<double>(words_each * 8 * pool.size()) / seconds_since(start));
  }
  munmap(memory, static_cast<size_t>(mapped));
  return best;
}

constexpr int64_t rounds = 20'000'000;

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) double multiply_adds_avx2() {
  __m256 sums[12];
  for (auto& sum : sums) sum = _mm256_set1_ps(1.0F);
  const __m256 factor = _mm256_set1_ps(0.999F);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma clang loop unroll(full)
    for (int j = 0; j < 12; ++j) sums[j] = _mm256_fmadd_ps(sums[j], factor, factor);
  }
  for (int j = 1; j < 12; ++j) sums[0] = _mm256_add_ps(sums[0], sums[j]);
  sink = static_cast<uint64_t>(_mm256_cvtss_f32(sums[0]));
  return static_cast<double>(rounds) * 12 * 8 * 2;
}

__attribute__((target("avx512f"))) double multiply_adds_avx512() {
  __m512 sums[12];
  for (auto& sum : sums) sum = _mm512_set1_ps(1.0F);
  const __m512 factor = _mm512_set1_ps(0.999F);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma clang loop unroll(full)
    for (int j = 0; j < 12; ++j) sums[j] = _mm512_fmadd_ps(sums[j], factor, factor);
  }
  for (int j = 1; j < 12; ++j) sums[0] = _mm512_add_ps(sums[0], sums[j]);
  sink = static_cast<uint64_t>(_mm512_cvtss_f32(sums[0]));
  return static_cast<double>(rounds) * 12 * 16 * 2;
}
#endif

double multiply_adds_plain() {
  float sums[32];
  for (float& sum : sums) sum = 1.0F;
  for (int64_t i = 0; i < rounds; ++i) {
    for (float& sum : sums) sum = sum * 0.999F + 0.999F;
  }
  sink = static_cast<uint64_t>(sums[0] + sums[31]);
  return static_cast<double>(rounds) * 32 * 2;
}

double multiply_adds() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_adds_avx512();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_adds_avx2();
#endif
  return multiply_adds_plain();
}

double measure_flops(ThreadPool& pool) {
  double best = 0.0;
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<double> done(static_cast<size_t>(pool.size()));
    const int64_t start = now_us();
    pool.run([&](int worker) { done[static_cast<size_t>(worker)] = multiply_adds(); });
    double total = 0.0;
    for (const double part : done) total += part;
    best = std::max(best, total / seconds_since(start));
  }
  return best;
}

}  // namespace

MachineLimits measure_limits(int threads, int64_t bytes) {
  ThreadPool pool(threads);
  return {measure_reads(pool, bytes), measure_flops(pool)};
}

}  // namespace quern
