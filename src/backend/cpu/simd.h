// The vectors of one instruction set, and what the kernels compute with them. Included only by files compiled per
// level.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "formats/half.h"

namespace quern::QUERN_ISA {

#if defined(__AVX512F__)
inline constexpr int lanes = 16;
#elif defined(__AVX2__)
inline constexpr int lanes = 8;
#else
inline constexpr int lanes = 4;
#endif

using Floats [[gnu::vector_size(lanes * 4)]] = float;
using Ints [[gnu::vector_size(lanes * 4)]] = int32_t;

#define QUERN_INLINE [[gnu::always_inline]] inline

QUERN_INLINE Floats load(const float* from) {
  Floats value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
QUERN_INLINE void store(float* to, Floats value) { std::memcpy(to, &value, sizeof value); }
QUERN_INLINE Floats broadcast(float value) {
  Floats result;
  for (int i = 0; i < lanes; ++i) result[i] = value;
  return result;
}
QUERN_INLINE Ints bits_of(Floats value) { return reinterpret_cast<Ints>(value); }
QUERN_INLINE Floats floats_of(Ints bits) { return reinterpret_cast<Floats>(bits); }

/// 0, 1, 2, ...
QUERN_INLINE Ints lane_numbers() {
  Ints value;
  for (int i = 0; i < lanes; ++i) value[i] = i;
  return value;
}

/// a * b + c, rounded once where the processor can.
QUERN_INLINE Floats fma(Floats a, Floats b, Floats c) {
#if defined(__FMA__) || defined(__AVX512F__)
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// The larger of each pair; b where a is not a number.
QUERN_INLINE Floats max(Floats a, Floats b) { return a > b ? a : b; }

/// The sum of all lanes, as a tree: lane i with lane i + n/2.
QUERN_INLINE float sum(Floats value) {
  float part[lanes];
  store(part, value);
  for (int half = lanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) part[i] += part[i + half];
  }
  return part[0];
}

QUERN_INLINE float largest(Floats value) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(reinterpret_cast<__m512>(value));
#elif defined(__AVX2__)
  const auto wide = reinterpret_cast<__m256>(value);
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(wide), _mm256_extractf128_ps(wide, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
#else
  float result = value[0];
  for (int i = 1; i < lanes; ++i) result = value[i] > result ? value[i] : result;
  return result;
#endif
}

QUERN_INLINE bool any(Ints truth) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(truth), reinterpret_cast<__m512i>(truth)) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(reinterpret_cast<__m256>(truth)) != 0;
#else
  int32_t result = 0;
  for (int i = 0; i < lanes; ++i) result |= truth[i];
  return result != 0;
#endif
}

QUERN_INLINE Floats load(const uint16_t* f16) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(f16))));
#elif defined(__AVX2__)
  return reinterpret_cast<Floats>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(f16))));
#else
  Floats value;
  for (int i = 0; i < lanes; ++i) value[i] = f16_to_f32(f16[i]);
  return value;
#endif
}

QUERN_INLINE Floats load(const uint8_t* e4m3) {
  using Bytes [[gnu::vector_size(lanes)]] = uint8_t;
  using Words [[gnu::vector_size(lanes * 4)]] = uint32_t;
  Bytes bytes;
  std::memcpy(&bytes, e4m3, sizeof bytes);
  const Words wide = __builtin_convertvector(bytes, Words);
  // Scaling by 2^120 moves the exponent and makes subnormals exact.
  const Words bits = (wide & 0x80U) << 24 | (wide & 0x7FU) << 20;
  const Floats value = reinterpret_cast<Floats>(bits) * 0x1p120F;
  return (wide & 0x7FU) == 0x7FU ? broadcast(__builtin_nanf("")) : value;
}

QUERN_INLINE void store(uint16_t* f16, Floats value) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(f16),
                      _mm512_cvtps_ph(reinterpret_cast<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(f16),
                   _mm256_cvtps_ph(reinterpret_cast<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < lanes; ++i) f16[i] = f32_to_f16(value[i]);
#endif
}

/// e^x within 3e-7 relative; results below 2^-126 become 0. exp(0) is 1; what is not a number stays so.
QUERN_INLINE Floats exp(Floats x) {
  // x = n ln 2 + r with |r| <= ln(2) / 2. Adding `magic` rounds to an integer and leaves it in the low bits.
  constexpr float magic = 12582912.0F;
  const Floats shifted = fma(x, broadcast(1.44269504F), broadcast(magic));
  const Floats n = shifted - magic;
  Floats r = fma(n, broadcast(-0.693145752F), x);
  r = fma(n, broadcast(-1.42860677e-6F), r);
  Floats p = broadcast(1.0F / 720);
  p = fma(p, r, broadcast(1.0F / 120));
  p = fma(p, r, broadcast(1.0F / 24));
  p = fma(p, r, broadcast(1.0F / 6));
  p = fma(p, r, broadcast(0.5F));
  p = fma(p, r, broadcast(1.0F));
  p = fma(p, r, broadcast(1.0F));
  const Floats scaled = floats_of(bits_of(p) + (bits_of(shifted) << 23));
  const Floats flushed = x < -87.3365F ? Floats{} : scaled;
  return x <= 88.722F ? flushed : x + __builtin_inff();
}

/// 1 / (1 + e^-x)
QUERN_INLINE Floats sigmoid(Floats x) { return 1.0F / (1.0F + exp(-x)); }

/// Within 3e-7 absolute.
QUERN_INLINE Floats tanh(Floats x) { return 1.0F - 2.0F / (exp(x + x) + 1.0F); }

/// f(Floats) -> Floats applied to every element of x, into y.
template <typename F>
QUERN_INLINE void map(float* y, const float* x, int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(y + i, f(load(x + i)));
  if (i == count) return;
  float rest[lanes] = {};
  std::memcpy(rest, x + i, static_cast<size_t>(count - i) * sizeof(float));
  store(rest, f(load(rest)));
  std::memcpy(y + i, rest, static_cast<size_t>(count - i) * sizeof(float));
}

/// The same of two operands.
template <typename F>
QUERN_INLINE void map(float* y, const float* a, const float* b, int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(y + i, f(load(a + i), load(b + i)));
  if (i == count) return;
  float rest_a[lanes] = {};
  float rest_b[lanes] = {};
  std::memcpy(rest_a, a + i, static_cast<size_t>(count - i) * sizeof(float));
  std::memcpy(rest_b, b + i, static_cast<size_t>(count - i) * sizeof(float));
  store(rest_a, f(load(rest_a), load(rest_b)));
  std::memcpy(y + i, rest_a, static_cast<size_t>(count - i) * sizeof(float));
}

}  // namespace quern::QUERN_ISA
