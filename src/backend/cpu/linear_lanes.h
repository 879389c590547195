// Lanes: the vectors that the matrix kernels are written in, one output row per lane: AVX-512, AVX2 or plain arrays.
// Each copy of the kernels sees one of them; integer results are the same in all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "formats/half.h"

#if defined(__AVX512VNNI__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace quern::QUERN_ISA::panels {

#define QUERN_INLINE [[gnu::always_inline]] inline

QUERN_INLINE void prefetch(const std::byte* p) { __builtin_prefetch(p, 0, 3); }

/// Two neighbouring 16-bit values as the 32 bits they are.
QUERN_INLINE int32_t pair_at(const int16_t* p) {
  int32_t pair = 0;
  std::memcpy(&pair, p, sizeof pair);
  return pair;
}

#if defined(__AVX512VNNI__)

inline constexpr int lanes = 16;
using Ints = __m512i;
using Floats = __m512;

QUERN_INLINE Ints load_ints(const void* p) { return _mm512_loadu_si512(p); }
QUERN_INLINE void store_ints(void* p, Ints v) { _mm512_storeu_si512(p, v); }
QUERN_INLINE Ints broadcast_int(int32_t v) { return _mm512_set1_epi32(v); }
QUERN_INLINE Ints broadcast_short(int16_t v) { return _mm512_set1_epi16(v); }
QUERN_INLINE Ints bit_and(Ints a, Ints b) { return _mm512_and_si512(a, b); }
QUERN_INLINE Ints bit_or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
QUERN_INLINE Ints sub_short(Ints a, Ints b) { return _mm512_sub_epi16(a, b); }
template <int Bits>
QUERN_INLINE Ints right_short(Ints a) {
  return _mm512_srli_epi16(a, Bits);
}
template <int Bits>
QUERN_INLINE Ints left_short(Ints a) {
  return _mm512_slli_epi16(a, Bits);
}
QUERN_INLINE Ints dot(Ints sum, Ints a, Ints b) { return _mm512_dpwssd_epi32(sum, a, b); }
QUERN_INLINE void in_order(Ints& v) { asm volatile("" : "+v"(v)); }

QUERN_INLINE Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
QUERN_INLINE Floats broadcast(float v) { return _mm512_set1_ps(v); }
QUERN_INLINE Floats load_floats(const void* p) { return _mm512_loadu_ps(p); }
QUERN_INLINE void store_floats(void* p, Floats v) { _mm512_storeu_ps(p, v); }
QUERN_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
QUERN_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
QUERN_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
QUERN_INLINE __m256i load_half_width(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
QUERN_INLINE __m128i load_quarter_width(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
QUERN_INLINE Floats load_f16(const void* p) { return _mm512_cvtph_ps(load_half_width(p)); }
QUERN_INLINE Floats load_bf16(const void* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_half_width(p)), 16));
}
QUERN_INLINE Floats load_e4m3(const void* p) {
  const Ints high = _mm512_slli_epi32(_mm512_cvtepu8_epi32(load_quarter_width(p)), 24);
  const Ints bits = _mm512_and_si512(_mm512_srai_epi32(high, 4), _mm512_set1_epi32(static_cast<int>(0x87F00000U)));
  const __mmask16 none =
      _mm512_cmpeq_epi32_mask(_mm512_slli_epi32(high, 1), _mm512_set1_epi32(static_cast<int>(0xFE000000U)));
  const Floats value = mul(_mm512_castsi512_ps(bits), broadcast(0x1p120F));
  return _mm512_mask_mov_ps(value, none, broadcast(__builtin_nanf("")));
}
QUERN_INLINE Floats load_u8(const void* p) { return to_floats(_mm512_cvtepu8_epi32(load_quarter_width(p))); }
QUERN_INLINE Floats load_i8(const void* p) { return to_floats(_mm512_cvtepi8_epi32(load_quarter_width(p))); }

#elif defined(__AVX2__)

inline constexpr int lanes = 8;
using Ints = __m256i;
using Floats = __m256;

QUERN_INLINE Ints load_ints(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
QUERN_INLINE void store_ints(void* p, Ints v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
QUERN_INLINE Ints broadcast_int(int32_t v) { return _mm256_set1_epi32(v); }
QUERN_INLINE Ints broadcast_short(int16_t v) { return _mm256_set1_epi16(v); }
QUERN_INLINE Ints bit_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
QUERN_INLINE Ints bit_or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
QUERN_INLINE Ints sub_short(Ints a, Ints b) { return _mm256_sub_epi16(a, b); }
template <int Bits>
QUERN_INLINE Ints right_short(Ints a) {
  return _mm256_srli_epi16(a, Bits);
}
template <int Bits>
QUERN_INLINE Ints left_short(Ints a) {
  return _mm256_slli_epi16(a, Bits);
}
QUERN_INLINE Ints dot(Ints sum, Ints a, Ints b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
/// Keeps the compiler from moving this sum past others: it would run out of registers.
QUERN_INLINE void in_order(Ints& v) { asm volatile("" : "+x"(v)); }

QUERN_INLINE Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }
QUERN_INLINE Floats broadcast(float v) { return _mm256_set1_ps(v); }
QUERN_INLINE Floats load_floats(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
QUERN_INLINE void store_floats(void* p, Floats v) { _mm256_storeu_ps(static_cast<float*>(p), v); }
QUERN_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
QUERN_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
QUERN_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
QUERN_INLINE __m128i load_half_width(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
QUERN_INLINE __m128i load_quarter_width(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
QUERN_INLINE Floats load_f16(const void* p) { return _mm256_cvtph_ps(load_half_width(p)); }
QUERN_INLINE Floats load_bf16(const void* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half_width(p)), 16));
}
QUERN_INLINE Floats load_e4m3(const void* p) {
  const Ints high = _mm256_slli_epi32(_mm256_cvtepu8_epi32(load_quarter_width(p)), 24);
  const Ints bits = _mm256_and_si256(_mm256_srai_epi32(high, 4), _mm256_set1_epi32(static_cast<int>(0x87F00000U)));
  const Ints none = _mm256_cmpeq_epi32(_mm256_slli_epi32(high, 1), _mm256_set1_epi32(static_cast<int>(0xFE000000U)));
  const Floats value = mul(_mm256_castsi256_ps(bits), broadcast(0x1p120F));
  return _mm256_or_ps(value, _mm256_castsi256_ps(none));  // all bits set are no number
}
QUERN_INLINE Floats load_u8(const void* p) { return to_floats(_mm256_cvtepu8_epi32(load_quarter_width(p))); }
QUERN_INLINE Floats load_i8(const void* p) { return to_floats(_mm256_cvtepi8_epi32(load_quarter_width(p))); }

#else

inline constexpr int lanes = 4;
using Ints [[gnu::vector_size(4 * lanes)]] = int32_t;
using Shorts [[gnu::vector_size(4 * lanes)]] = uint16_t;
using Floats [[gnu::vector_size(4 * lanes)]] = float;

template <typename T>
QUERN_INLINE T load_as(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

QUERN_INLINE Ints load_ints(const void* p) { return load_as<Ints>(p); }
QUERN_INLINE void store_ints(void* p, Ints v) { std::memcpy(p, &v, sizeof v); }
QUERN_INLINE Ints broadcast_int(int32_t v) { return Ints{} + v; }
QUERN_INLINE Ints broadcast_short(int16_t v) { return reinterpret_cast<Ints>(Shorts{} + static_cast<uint16_t>(v)); }
QUERN_INLINE Ints bit_and(Ints a, Ints b) { return a & b; }
QUERN_INLINE Ints bit_or(Ints a, Ints b) { return a | b; }
QUERN_INLINE Ints sub_short(Ints a, Ints b) {
  return reinterpret_cast<Ints>(reinterpret_cast<Shorts>(a) - reinterpret_cast<Shorts>(b));
}
template <int Bits>
QUERN_INLINE Ints right_short(Ints a) {
  return reinterpret_cast<Ints>(reinterpret_cast<Shorts>(a) >> Bits);
}
template <int Bits>
QUERN_INLINE Ints left_short(Ints a) {
  return reinterpret_cast<Ints>(reinterpret_cast<Shorts>(a) << Bits);
}
QUERN_INLINE Ints low_half(Ints a) { return (a << 16) >> 16; }
QUERN_INLINE Ints dot(Ints sum, Ints a, Ints b) { return sum + low_half(a) * low_half(b) + (a >> 16) * (b >> 16); }
QUERN_INLINE void in_order(Ints& /*v*/) {}

QUERN_INLINE Floats to_floats(Ints a) { return __builtin_convertvector(a, Floats); }
QUERN_INLINE Floats broadcast(float v) { return Floats{} + v; }
QUERN_INLINE Floats load_floats(const void* p) { return load_as<Floats>(p); }
QUERN_INLINE void store_floats(void* p, Floats v) { std::memcpy(p, &v, sizeof v); }
QUERN_INLINE Floats add(Floats a, Floats b) { return a + b; }
QUERN_INLINE Floats mul(Floats a, Floats b) { return a * b; }
QUERN_INLINE Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
/// Every lane from its own small number.
template <typename Narrow, typename Widen>
QUERN_INLINE Floats widen(const void* p, Widen&& to_float) {
  Floats out;
  for (int i = 0; i < lanes; ++i) {
    out[i] = to_float(load_as<Narrow>(static_cast<const std::byte*>(p) + static_cast<size_t>(i) * sizeof(Narrow)));
  }
  return out;
}
QUERN_INLINE Floats load_f16(const void* p) { return widen<uint16_t>(p, f16_to_f32); }
QUERN_INLINE Floats load_bf16(const void* p) { return widen<uint16_t>(p, bf16_to_f32); }
QUERN_INLINE Floats load_e4m3(const void* p) { return widen<uint8_t>(p, e4m3_to_f32); }
QUERN_INLINE Floats load_u8(const void* p) {
  return widen<uint8_t>(p, [](uint8_t v) { return static_cast<float>(v); });
}
QUERN_INLINE Floats load_i8(const void* p) {
  return widen<int8_t>(p, [](int8_t v) { return static_cast<float>(v); });
}

#endif

inline constexpr int lanes_bytes = 4 * lanes;

}  // namespace quern::QUERN_ISA::panels
