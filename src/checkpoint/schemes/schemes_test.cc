// Stored blocks, converted and decoded, are bit for bit what the gguf package makes of them
// (tools/make_quant_cases.py).
#include <bit>
#include <cstring>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/source.h"
#include "formats/list.h"

namespace quern {
namespace {

struct Case {
  char name[16];
  uint32_t block_values, block_bytes, blocks;
};

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
      const auto words = Format::load_scales(scales.data() + group * Format::scale_bytes);
      for (int i = 0; i < Format::group / 8; ++i) {
        const Eight eight = Format::decode8(Format::load8(group_data, i), words, i);
        values.insert(values.end(), eight.v, eight.v + 8);
      }
    }
  });
  return values;
}

TEST(Schemes, DecodeLikeTheReferenceBitForBit) {
  const std::string file = read_file(QUERN_SOURCE_DIR "/src/checkpoint/testdata/quant_cases.bin").value();
  std::set<std::string> seen;
  for (size_t at = 0; at < file.size();) {
    Case header;
    ASSERT_LE(at + sizeof header, file.size());
    std::memcpy(&header, file.data() + at, sizeof header);
    at += sizeof header;
    const std::string name(header.name, strnlen(header.name, sizeof header.name));
    const int64_t cols = int64_t{header.block_values} * header.blocks;
    const size_t stored = size_t{header.block_bytes} * header.blocks;
    ASSERT_LE(at + stored + 4 * static_cast<size_t>(cols), file.size());
    const Scheme* scheme = find_scheme(name);
    ASSERT_NE(scheme, nullptr) << name;
    EXPECT_EQ(scheme->block_values, header.block_values);
    EXPECT_EQ(scheme->block_bytes, header.block_bytes);

    const std::vector<float> values = decode_row(*scheme, reinterpret_cast<const std::byte*>(file.data()) + at, cols);

    ASSERT_EQ(values.size(), static_cast<size_t>(cols));
    for (size_t i = 0; i < values.size(); ++i) {
      float expected = 0;
      std::memcpy(&expected, file.data() + at + stored + 4 * i, 4);
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected)) << name << " value " << i;
    }
    at += stored + 4 * static_cast<size_t>(cols);
    seen.insert(name);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K"}));
}

TEST(Schemes, FloatsKeepTheirBytesWhateverTheirNumber) {
  const float values[] = {1.5F, -2.0F, 3.25F};
  float copied[3] = {};
  find_scheme("F32")->convert_row(reinterpret_cast<const std::byte*>(values), 3, reinterpret_cast<std::byte*>(copied),
                                  nullptr);
  EXPECT_EQ(std::memcmp(values, copied, sizeof values), 0);
  EXPECT_EQ(find_scheme("Q2_K"), nullptr);
  EXPECT_EQ(known_types().size(), 10U);
}

}  // namespace
}  // namespace quern
