// Every format: what encode writes, decode8 reads back within the format's bound.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <vector>

#include "formats/list.h"

namespace quern {
namespace {

template <typename Format>
std::vector<float> round_trip(const std::vector<float>& values) {
  std::vector<std::byte> data(Format::data_bytes);
  std::vector<std::byte> scales(Format::scale_bytes);
  std::vector<float> out;
  Format::encode(values.data(), data.data(), scales.data());
  for (int i = 0; i < Format::group / 8; ++i) {
    const Eight eight = Format::decode8(Format::load8(data.data(), i), Format::load_scales(scales.data(), i), i);
    out.insert(out.end(), eight.v, eight.v + 8);
  }
  return out;
}

template <typename Format>
void expect_within_bound(const std::vector<float>& values) {
  float largest = 0.0F;
  for (const float value : values) largest = std::max(largest, std::fabs(value));

  const std::vector<float> decoded = round_trip<Format>(values);

  ASSERT_EQ(decoded.size(), values.size());
  for (size_t j = 0; j < values.size(); ++j) {
    ASSERT_NEAR(decoded[j], values[j], Format::error * largest) << Format::name << " value " << j;
  }
}

TEST(Formats, EncodeAndDecodeWithinTheBound) {
  for_each_format([]<typename Format>(Format) {
    constexpr bool few_exponents = Format::id == FormatId::f8 || Format::id == FormatId::nvfp4;
    constexpr int reach = few_exponents ? 4 : 10;
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (int round = 0; round < 200; ++round) {
      const float spread = std::exp2(static_cast<float>(round % (2 * reach + 1) - reach));
      const float offset = static_cast<float>(round % 5 - 2) * spread;
      std::vector<float> values(Format::group);
      for (float& value : values) value = spread * normal(random) + offset;
      expect_within_bound<Format>(values);
    }
  });
}

TEST(Formats, BlocksOfVeryDifferentSizeShareAGroup) {
  for_each_format([]<typename Format>(Format) {
    std::vector<float> values(Format::group);
    for (size_t j = 0; j < values.size(); ++j) {
      values[j] = std::ldexp(static_cast<float>(static_cast<int>(j % 7) - 3), static_cast<int>(j / 16) % 9 - 6);
    }
    expect_within_bound<Format>(values);
  });
}

TEST(Formats, ZerosStayZero) {
  for_each_format([]<typename Format>(Format) {
    const std::vector<float> zeros(Format::group, 0.0F);
    EXPECT_EQ(round_trip<Format>(zeros), zeros) << Format::name;
  });
}

TEST(Formats, SizesFitTheWords) {
  std::set<std::string_view> names;
  for_each_format([&]<typename Format>(Format) {
    EXPECT_EQ(Format::group % 8, 0);
    EXPECT_LE(Format::data_bytes * 8, Format::group / 8 * Format::chunk_words * 32);
    EXPECT_EQ(format_info(Format::id).name, Format::name);
    EXPECT_EQ(format_info(Format::id).data_bytes, Format::data_bytes);
    names.insert(Format::name);
  });
  EXPECT_EQ(names.size(), 24U);
}

// By value, the search was once compiled into one that skips some.
template <int Count>
void expect_extremes() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 1000; ++round) {
    float values[Count];
    for (float& value : values) value = normal(random);
    std::vector<float> sorted(values, values + Count);
    std::sort(sorted.begin(), sorted.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    ASSERT_EQ(extreme(values, Count), sorted.back()) << Count;
  }
}

TEST(Formats, FindTheValueOfLargestMagnitude) {
  expect_extremes<8>();
  expect_extremes<16>();
  expect_extremes<32>();
  expect_extremes<64>();
}

TEST(Half, EveryFloat16SurvivesBothWays) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      ASSERT_EQ(f32_to_f16(value), half) << bits;
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(f32_to_f16(1.0F + 0x1p-11F), 0x3C00);    // tie: to even
  EXPECT_EQ(f32_to_f16(1.0F + 0x1.8p-10F), 0x3C02);  // tie: to even
  EXPECT_EQ(f32_to_f16(1.0F + 0x1.2p-11F), 0x3C01);  // above the tie
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7C00);           // beyond the largest
  EXPECT_EQ(f32_to_f16(0x1p-25F), 0x0000);           // half of the smallest: to even
  EXPECT_EQ(f32_to_f16(0x1.8p-25F), 0x0001);
  EXPECT_EQ(f32_to_bf16(1.0F + 0x1p-8F), 0x3F80);
  EXPECT_EQ(f32_to_bf16(1.0F + 0x1.8p-7F), 0x3F82);
}

/// Every e4m3 value by its definition, ascending from 0.
std::vector<double> e4m3_magnitudes() {
  std::vector<double> values;
  for (int bits = 0; bits < 0x7F; ++bits) {
    const int exponent = bits >> 3;
    const int mantissa = bits & 7;
    values.push_back(exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
  }
  return values;
}

TEST(E4m3, MeansWhatItsDefinitionSays) {
  const std::vector<double> values = e4m3_magnitudes();
  for (size_t bits = 0; bits < values.size(); ++bits) {
    const auto positive = static_cast<uint8_t>(bits);
    EXPECT_EQ(static_cast<double>(e4m3_to_f32(positive)), values[bits]);
    EXPECT_EQ(static_cast<double>(e4m3_to_f32(positive | 0x80U)), -values[bits]);
    EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(positive)), positive);
    EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(positive | 0x80U)), positive | 0x80U);
  }
  EXPECT_EQ(values.back(), 448.0);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7F)));
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0xFF)));
}

TEST(E4m3, RoundsToNearestEvenAndSaturates) {
  const std::vector<double> values = e4m3_magnitudes();
  for (size_t bits = 0; bits + 1 < values.size(); ++bits) {
    const auto middle = static_cast<float>((values[bits] + values[bits + 1]) / 2);
    EXPECT_EQ(f32_to_e4m3(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(f32_to_e4m3(std::nextafter(middle, 0.0F)), bits);
    EXPECT_EQ(f32_to_e4m3(std::nextafter(middle, 500.0F)), bits + 1);
  }
  EXPECT_EQ(f32_to_e4m3(449.0F), 0x7E);
  EXPECT_EQ(f32_to_e4m3(-1e30F), 0xFE);
  EXPECT_EQ(f32_to_e4m3(INFINITY), 0x7E);
  EXPECT_EQ(f32_to_e4m3(NAN) & 0x7F, 0x7F);
  EXPECT_EQ(f32_to_e4m3(-0.0F), 0x80);
}

}  // namespace
}  // namespace quern
