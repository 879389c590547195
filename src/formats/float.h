// f32, f16, bf16: plain floats, as formats. The group of 8 is the unit of decode8; there are no scales.
#pragma once

#include <bit>
#include <string_view>

#include "formats/half.h"
#include "formats/weight.h"
#include "formats/words.h"

namespace quern {

struct F32 {
  static constexpr FormatId id = FormatId::f32;
  static constexpr std::string_view name = "f32";
  static constexpr int group = 8;
  static constexpr int data_bytes = 32;
  static constexpr int scale_bytes = 0;
  static constexpr int chunk_words = 8;
  static constexpr float error = 0.0F;  // largest error of encode, in parts of the group's largest magnitude

  static constexpr Words<8> load8(const std::byte* data, int i) {
    Words<8> words;
    for (int j = 0; j < 8; ++j) words.v[j] = load_u32(data + 32 * i + 4 * j);
    return words;
  }
  static constexpr Words<0> load_scales(const std::byte* /*scales*/, int /*i*/) { return {}; }

  static constexpr Eight decode8(Words<8> words, Words<0> /*scales*/, int /*i*/) {
    Eight out;
    for (int j = 0; j < 8; ++j) out.v[j] = std::bit_cast<float>(words.v[j]);
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* /*scales*/) {
    for (int j = 0; j < group; ++j) store_u32(data + 4 * j, std::bit_cast<uint32_t>(x[j]));
  }
};

/// The two 16-bit floats differ in two conversions only.
template <FormatId Id, float (*Widen)(uint16_t), uint16_t (*Narrow)(float)>
struct Float16 {
  static constexpr FormatId id = Id;
  static constexpr int group = 8;
  static constexpr int data_bytes = 16;
  static constexpr int scale_bytes = 0;
  static constexpr int chunk_words = 4;

  static constexpr Words<4> load8(const std::byte* data, int i) {
    Words<4> words;
    for (int j = 0; j < 4; ++j) words.v[j] = load_u32(data + 16 * i + 4 * j);
    return words;
  }
  static constexpr Words<0> load_scales(const std::byte* /*scales*/, int /*i*/) { return {}; }

  static constexpr Eight decode8(Words<4> words, Words<0> /*scales*/, int /*i*/) {
    Eight out;
    for (int j = 0; j < 4; ++j) {
      out.v[2 * j] = Widen(static_cast<uint16_t>(words.v[j]));
      out.v[2 * j + 1] = Widen(static_cast<uint16_t>(words.v[j] >> 16));
    }
    return out;
  }

  static void encode(const float* x, std::byte* data, std::byte* /*scales*/) {
    for (int j = 0; j < group; ++j) store_u16(data + 2 * j, Narrow(x[j]));
  }
};

struct F16 : Float16<FormatId::f16, f16_to_f32, f32_to_f16> {
  static constexpr std::string_view name = "f16";
  static constexpr float error = 1.0F / 2048.0F;
};

struct BF16 : Float16<FormatId::bf16, bf16_to_f32, f32_to_bf16> {
  static constexpr std::string_view name = "bf16";
  static constexpr float error = 1.0F / 256.0F;
};

}  // namespace quern
