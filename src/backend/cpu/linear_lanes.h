// Lanes: what the matrix kernels compute with vectors of one output row per lane, beyond simd.h. Each copy of the
// kernels sees one instruction set; integer results are the same in all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/simd.h"

namespace quern::QUERN_ISA::panels {

inline constexpr int lanes_bytes = 4 * lanes;
using Shorts [[gnu::vector_size(lanes_bytes)]] = uint16_t;

QUERN_INLINE void prefetch(const std::byte* p) { __builtin_prefetch(p, 0, 3); }

template <typename T>
QUERN_INLINE T load_as(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

/// Two neighbouring 16-bit values as the 32 bits they are.
QUERN_INLINE int32_t pair_at(const int16_t* p) { return load_as<int32_t>(p); }

QUERN_INLINE Ints load_ints(const void* p) { return load_as<Ints>(p); }
QUERN_INLINE Ints broadcast_int(int32_t v) { return Ints{} + v; }
QUERN_INLINE Ints broadcast_short(int16_t v) { return reinterpret_cast<Ints>(Shorts{} + static_cast<uint16_t>(v)); }
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

/// What the codes of 16 bits each stand for, all below 16, in a table whose entry for 0 is 0.
QUERN_INLINE Ints look_up(const uint8_t (&table)[16], Ints codes) {
#if defined(__AVX512BW__)
  const __m512i entries = _mm512_broadcast_i32x4(load_as<__m128i>(table));
  return reinterpret_cast<Ints>(_mm512_shuffle_epi8(entries, reinterpret_cast<__m512i>(codes)));
#elif defined(__AVX2__)
  const __m256i entries = _mm256_broadcastsi128_si256(load_as<__m128i>(table));
  return reinterpret_cast<Ints>(_mm256_shuffle_epi8(entries, reinterpret_cast<__m256i>(codes)));
#else
  const Shorts from = reinterpret_cast<Shorts>(codes);
  Shorts to;
  for (int i = 0; i < 2 * lanes; ++i) to[i] = table[from[i]];
  return reinterpret_cast<Ints>(to);
#endif
}

/// sum + the products of the low and of the high halves of every lane
QUERN_INLINE Ints dot(Ints sum, Ints a, Ints b) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<Ints>(
      _mm512_dpwssd_epi32(reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return sum + reinterpret_cast<Ints>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return sum + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}
/// Keeps the compiler from moving this sum past others: it would run out of registers.
QUERN_INLINE void in_order([[maybe_unused]] Ints& v) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(v));
#elif defined(__AVX2__)
  asm volatile("" : "+x"(v));
#endif
}

/// Every lane from its own small number.
template <typename Narrow>
QUERN_INLINE Ints widen(const void* p) {
  using Narrows [[gnu::vector_size(lanes * sizeof(Narrow))]] = Narrow;
  return __builtin_convertvector(load_as<Narrows>(p), Ints);
}
QUERN_INLINE Floats to_floats(Ints a) { return __builtin_convertvector(a, Floats); }
QUERN_INLINE Floats load_floats(const void* p) { return load_as<Floats>(p); }
QUERN_INLINE Floats load_f16(const void* p) { return load(static_cast<const uint16_t*>(p)); }
QUERN_INLINE Floats load_bf16(const void* p) { return floats_of(widen<uint16_t>(p) << 16); }
QUERN_INLINE Floats load_e4m3(const void* p) { return load(static_cast<const uint8_t*>(p)); }
QUERN_INLINE Floats load_u8(const void* p) { return to_floats(widen<uint8_t>(p)); }
QUERN_INLINE Floats load_i8(const void* p) { return to_floats(widen<int8_t>(p)); }
QUERN_INLINE Floats load_half_of_e8m0(const void* p) {
  const Ints bits = widen<uint8_t>(p);
  const Ints subnormal = bits == 0 ? broadcast_int(0x00200000) : broadcast_int(0x00400000);
  return floats_of(bits < 2 ? subnormal : (bits - 1) << 23);
}
QUERN_INLINE Floats load_half_of_ue4m3(const void* p) { return floats_of(widen<uint8_t>(p) << 20) * 0x1p119F; }

}  // namespace quern::QUERN_ISA::panels
