// Stored blocks, converted and decoded, are bit for bit what the gguf package makes of them
// (tools/make_quant_cases.py).
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/gguf_types.h"
#include "checkpoint/source.h"
#include "checkpoint/testing.h"
#include "formats/list.h"

namespace quern {
namespace {

std::vector<float> decode_row(const Scheme& scheme, const std::byte* stored, int64_t cols) {
  const FormatSizes sizes = format_info(scheme.format);
  const auto groups = static_cast<size_t>(cols / sizes.group);
  std::vector<std::byte> data(groups * static_cast<size_t>(sizes.data_bytes));
  std::vector<std::byte> scales(groups * static_cast<size_t>(sizes.scale_bytes));
  scheme.convert_row(stored, cols, data.data(), scales.data());
  std::vector<float> values;
  visit_format(scheme.format, [&]<typename Format>(Format) {
    for (size_t group = 0; group < groups; ++group) {
      const std::byte* group_data = data.data() + group * Format::data_bytes;
      const std::byte* group_scales = scales.data() + group * Format::scale_bytes;
      for (int i = 0; i < Format::group / 8; ++i) {
        const Eight eight = Format::decode8(Format::load8(group_data, i), Format::load_scales(group_scales, i), i);
        values.insert(values.end(), eight.v, eight.v + 8);
      }
    }
  });
  return values;
}

TEST(Schemes, DecodeLikeTheReferenceBitForBit) {
  std::set<std::string> seen;
  for (const testing::QuantCase& one : testing::quant_cases(QUERN_SOURCE_DIR)) {
    const Scheme* scheme = find_scheme(one.type);
    ASSERT_NE(scheme, nullptr) << one.type;
    EXPECT_EQ(scheme->block_values, one.block_values);
    EXPECT_EQ(scheme->block_bytes, one.block_bytes);

    const std::vector<float> values = decode_row(*scheme, one.stored.data(), static_cast<int64_t>(one.floats.size()));

    ASSERT_EQ(values.size(), one.floats.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(one.floats[i]))
          << one.type << " value " << i;
    }
    seen.insert(one.type);
  }
  std::set<std::string> known;
  for (const std::string_view type : known_types()) known.emplace(type);
  known.erase("F32");
  known.erase("F8_E4M3");
  known.erase("MXFP4_BLOCKS");  // the same values as MXFP4, with the scales apart
  EXPECT_EQ(seen, known);
}

/// Where a stored block has the byte of an exponent whose high bit makes it infinite or worse.
std::vector<size_t> exponents_of(const std::string& type) {
  if (type == "BF16") return {1};
  if (type == "IQ1_M") return {55};
  if (type == "MXFP4") return {0};
  if (type == "NVFP4") return {};
  if (type == "Q2_K") return {81, 83};
  if (type == "Q3_K") return {109};
  if (type == "Q6_K") return {209};
  if (type == "TQ1_0") return {53};
  if (type == "TQ2_0") return {65};
  if (type == "Q4_1" || type == "Q5_1" || type == "Q4_K" || type == "Q5_K") return {1, 3};
  return {1};
}

std::vector<std::byte> random_blocks(const std::string& type, size_t block_bytes, size_t blocks) {
  std::vector<std::byte> bytes(blocks * block_bytes);
  uint64_t state = 20;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t z = state += 0x9E3779B97F4A7C15U;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    z ^= z >> 31;
    std::memcpy(bytes.data() + i, &z, std::min<size_t>(8, bytes.size() - i));
  }
  for (size_t block = 0; block < blocks; ++block) {
    for (const size_t at : exponents_of(type)) bytes[block * block_bytes + at] &= std::byte{0xBF};
  }
  return bytes;
}

TEST(Schemes, ManyBlocksDecodeLikeTheReference) {
  std::istringstream lines(read_file(QUERN_SOURCE_DIR "/src/checkpoint/testdata/quant_sums.txt").value());
  std::string type;
  std::string expected;
  size_t blocks = 0;
  size_t types = 0;
  for (; lines >> type >> blocks >> expected; ++types) {
    const Scheme* scheme = find_scheme(type);
    ASSERT_NE(scheme, nullptr) << type;
    const std::vector<std::byte> stored = random_blocks(type, static_cast<size_t>(scheme->block_bytes), blocks);

    const std::vector<float> values =
        decode_row(*scheme, stored.data(), static_cast<int64_t>(blocks) * scheme->block_values);

    uint64_t sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += (2 * i + 1) * std::bit_cast<uint32_t>(values[i]);
    EXPECT_EQ(fmt::format("{:016x}", sum), expected) << type;
  }
  EXPECT_EQ(types, known_types().size() - 3);  // all but F32, F8_E4M3 and MXFP4_BLOCKS
}

/// A line of the table of docs/models.md.
std::string documented(const GgufTensorType& type, const Scheme& scheme) {
  const FormatSizes sizes = format_info(scheme.format);
  const auto bits = [](int64_t bytes, int64_t values) {
    return static_cast<double>(8 * bytes) / static_cast<double>(values);
  };
  bool coded = false;
  visit_format(scheme.format, [&]<typename Format>(Format) { coded = requires { Format::code_bits; }; });
  return fmt::format("| {} | {:.4g} | {} | {:.4g} | {} |\n", type.name, bits(type.block_bytes, type.block_values),
                     sizes.name, bits(sizes.data_bytes + sizes.scale_bytes, sizes.group),
                     sizes.scale_bytes == 0 ? "floats"
                     : coded                ? "codes"
                                            : "levels");
}

TEST(Schemes, TheManualHasEveryTypeOfGguf) {
  std::string table;
  for (uint32_t id = 0; id < 64; ++id) {
    const GgufTensorType* type = find_gguf_type(id);
    const Scheme* scheme = type == nullptr ? nullptr : find_scheme(type->name);
    if (scheme != nullptr) table += documented(*type, *scheme);
  }
  const std::string manual = read_file(QUERN_SOURCE_DIR "/docs/models.md").value();
  EXPECT_NE(manual.find(table), std::string::npos) << "docs/models.md should have these lines:\n" << table;
}

TEST(Schemes, FloatsKeepTheirBytesWhateverTheirNumber) {
  const float values[] = {1.5F, -2.0F, 3.25F};
  float copied[3] = {};
  find_scheme("F32")->convert_row(reinterpret_cast<const std::byte*>(values), 3, reinterpret_cast<std::byte*>(copied),
                                  nullptr);
  EXPECT_EQ(std::memcmp(values, copied, sizeof values), 0);
  for (const char* type : {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"}) EXPECT_EQ(find_scheme(type), nullptr);
  EXPECT_EQ(known_types().size(), 30U);
}

}  // namespace
}  // namespace quern
