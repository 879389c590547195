// The GGUF reader: what it reads, and every malformed file of the corpus that it has to refuse.
#include "checkpoint/gguf.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "checkpoint/testing.h"

namespace quern {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::gguf_string;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::raw;

Result<Gguf> parse(const std::string& bytes) { return Gguf::parse(testing::as_bytes(bytes), "m.gguf"); }

/// The error of a file that must not parse.
std::string refusal(const std::string& bytes) {
  auto gguf = parse(bytes);
  if (gguf.ok()) return "accepted";
  EXPECT_THAT(gguf.error().message, HasSubstr("m.gguf: "));
  EXPECT_LT(gguf.error().message.size(), 600U);
  return gguf.error().message;
}

std::string all_types(uint32_t version) {
  GgufWriter writer;
  writer.version = version;
  writer.u8("u8", 200).pair("i8", 1, raw(int8_t{-3})).pair("u16", 2, raw(uint16_t{65000}));
  writer.pair("i16", 3, raw(int16_t{-300})).u32("u32", 4'000'000'000U).pair("i32", 5, raw(int32_t{-70000}));
  writer.f32("f32", 0.5F).boolean("bool", true).string("string", "text").pair("u64", 10, raw(uint64_t{1} << 40));
  writer.pair("i64", 11, raw(int64_t{-1} * (int64_t{1} << 40))).pair("f64", 12, raw(0.25));
  writer.array<uint16_t>("integers", 2, {1, 2, 3}).array<float>("floats", 6, {1.5F, -2.0F});
  writer.strings("strings", {"a", "", "bc"}).array<bool>("booleans", 7, {true, false});
  writer.tensor("matrix", {3, 2}, 0, std::string(24, 'x')).tensor("half", {5}, 1, std::string(10, 'y'));
  writer.tensor("blocks", {64, 2}, 8, std::string(4 * 34, 'z'));
  return writer.bytes();
}

class GgufVersions : public ::testing::TestWithParam<uint32_t> {};

TEST_P(GgufVersions, ReadsEveryTypeOfMetadata) {
  const std::string bytes = all_types(GetParam());

  const Gguf gguf = parse(bytes).value();

  EXPECT_EQ(gguf.version(), GetParam());
  EXPECT_EQ(gguf.metadata_count(), 16U);
  EXPECT_EQ(gguf.integer("u8").value(), 200);
  EXPECT_EQ(gguf.integer("i8").value(), -3);
  EXPECT_EQ(gguf.integer("u16").value(), 65000);
  EXPECT_EQ(gguf.integer("i16").value(), -300);
  EXPECT_EQ(gguf.integer("u32").value(), 4'000'000'000);
  EXPECT_EQ(gguf.integer("i32").value(), -70000);
  EXPECT_EQ(gguf.integer("u64").value(), int64_t{1} << 40);
  EXPECT_EQ(gguf.integer("i64").value(), -(int64_t{1} << 40));
  EXPECT_EQ(gguf.number("f32").value(), 0.5);
  EXPECT_EQ(gguf.number("f64").value(), 0.25);
  EXPECT_EQ(gguf.number("u8").value(), 200.0);
  EXPECT_EQ(gguf.boolean("bool").value(), true);
  EXPECT_EQ(gguf.string("string").value(), "text");
  EXPECT_THAT(*gguf.integers("integers").value(), ElementsAre(1, 2, 3));
  EXPECT_THAT(*gguf.integers("booleans").value(), ElementsAre(1, 0));
  EXPECT_THAT(*gguf.integers("u8").value(), ElementsAre(200));
  EXPECT_THAT(*gguf.floats("floats").value(), ElementsAre(1.5F, -2.0F));
  EXPECT_THAT(*gguf.strings("strings").value(), ElementsAre("a", "", "bc"));
}

TEST_P(GgufVersions, ReadsTheTensorTable) {
  const std::string bytes = all_types(GetParam());

  const Gguf gguf = parse(bytes).value();

  ASSERT_EQ(gguf.tensors().size(), 3U);
  EXPECT_THAT(gguf.find_tensor("matrix")->shape, ElementsAre(2, 3));
  EXPECT_EQ(gguf.find_tensor("matrix")->type, "F32");
  EXPECT_EQ(gguf.find_tensor("matrix")->bytes.size(), 24U);
  EXPECT_EQ(gguf.find_tensor("half")->bytes.size(), 10U);
  EXPECT_EQ(gguf.find_tensor("half")->bytes[0], std::byte{'y'});
  EXPECT_EQ(gguf.find_tensor("blocks")->type, "Q8_0");
  EXPECT_EQ(gguf.find_tensor("blocks")->bytes.back(), std::byte{'z'});
  EXPECT_EQ(gguf.find_tensor("nothing"), nullptr);
}

INSTANTIATE_TEST_SUITE_P(TwoAndThree, GgufVersions, ::testing::Values(2U, 3U));

// S4
TEST(Gguf, S4KeysOfAnotherTypeAreErrorsThatNameTheKey) {
  const std::string bytes = all_types(3);
  const Gguf gguf = parse(bytes).value();

  EXPECT_THAT(gguf.integer("string").error().message,
              HasSubstr(R"(key "string" is of type string, expected an integer)"));
  EXPECT_FALSE(gguf.integer("integers").ok());
  EXPECT_FALSE(gguf.integer("f32").ok());
  EXPECT_FALSE(gguf.number("bool").ok());
  EXPECT_FALSE(gguf.string("u8").ok());
  EXPECT_FALSE(gguf.boolean("u8").ok());
  EXPECT_FALSE(gguf.floats("integers").ok());
  EXPECT_FALSE(gguf.floats("f32").ok());
  EXPECT_FALSE(gguf.strings("string").ok());
  EXPECT_FALSE(gguf.integers("strings").ok());
  EXPECT_EQ(gguf.integer("absent").value(), std::nullopt);
}

TEST(Gguf, S3StringsThatChangeAfterParsingStayInsideTheirBytes) {
  std::string bytes = GgufWriter().string("text", "abc").strings("list", {"one", "two"}).bytes();
  const Gguf gguf = parse(bytes).value();
  ASSERT_EQ(gguf.string("text").value(), "abc");

  for (const char* text : {"abc", "two"}) bytes[bytes.find(text) - 8] = 100;

  EXPECT_THAT(gguf.string("text").error().message, HasSubstr("changed"));
  EXPECT_THAT(gguf.strings("list").error().message, HasSubstr("changed"));
}

TEST(Gguf, NumbersMustBeFiniteAndFit) {
  GgufWriter writer;
  writer.f32("nan", std::numeric_limits<float>::quiet_NaN()).pair("huge", 10, raw(~uint64_t{0}));
  writer.array<float>("list", 6, {1.0F, std::numeric_limits<float>::infinity()});
  const std::string bytes = writer.bytes();
  const Gguf gguf = parse(bytes).value();

  EXPECT_FALSE(gguf.number("nan").ok());
  EXPECT_FALSE(gguf.integer("huge").ok());
  EXPECT_FALSE(gguf.floats("list").ok());
}

// S3
TEST(Gguf, EveryCutOfAFileIsRefused) {
  const std::string whole = all_types(3);
  ASSERT_TRUE(parse(whole).ok());

  // The padding behind the last tensor may be missing.
  const size_t last_needed = whole.size() - (32 - 4 * 34 % 32);
  EXPECT_TRUE(parse(whole.substr(0, last_needed)).ok());
  for (size_t length = 0; length < last_needed; ++length) {
    ASSERT_NE(refusal(whole.substr(0, length)), "accepted") << length;
  }
}

// S1, S6
TEST(Gguf, S1HeadersThatLie) {
  EXPECT_THAT(refusal(""), HasSubstr("is not a GGUF file"));
  EXPECT_THAT(refusal("GGU"), HasSubstr("is not a GGUF file"));
  GgufWriter writer;
  writer.magic = "GGJT";
  EXPECT_THAT(refusal(writer.bytes()), HasSubstr("is not a GGUF file"));
  writer.magic = "GGUF";
  for (const uint32_t version : {0U, 1U, 4U, 0x80000000U}) {
    writer.version = version;
    EXPECT_THAT(refusal(writer.bytes()), HasSubstr("GGUF version")) << version;
  }
  for (const uint32_t version : {0x02000000U, 0x03000000U}) {
    writer.version = version;
    EXPECT_THAT(refusal(writer.bytes()), HasSubstr("big-endian")) << version;
  }
  for (const uint64_t count : {uint64_t{0xFFFFFFFF}, uint64_t{1} << 63, ~uint64_t{0}, uint64_t{1}}) {
    GgufWriter tensors;
    tensors.tensor_count = count;
    EXPECT_NE(refusal(tensors.bytes()), "accepted") << count;
    GgufWriter pairs;
    pairs.pair_count = count;
    EXPECT_NE(refusal(pairs.bytes()), "accepted") << count;
  }
}

// S1
TEST(Gguf, KeysThatLie) {
  for (const uint64_t length : {uint64_t{0}, uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0}, uint64_t{100}}) {
    EXPECT_NE(refusal(GgufWriter().raw_pair(gguf_string("key", length) + raw(uint32_t{0}) + "x").bytes()), "accepted")
        << length;
  }
  EXPECT_THAT(refusal(GgufWriter().u8("key", 1).u8("key", 2).bytes()), HasSubstr("there twice"));
  EXPECT_THAT(refusal(GgufWriter().u8(std::string_view("k\0y", 3), 1).bytes()), HasSubstr("NUL"));
}

// S1, S4
TEST(Gguf, ValuesThatLie) {
  const auto array = [](uint32_t type, uint64_t count, std::string_view elements) {
    return refusal(GgufWriter().pair("key", 9, raw(type) + raw(count) + std::string(elements)).bytes());
  };
  EXPECT_THAT(refusal(GgufWriter().pair("key", 13, "12345678").bytes()), HasSubstr("unknown value type 13"));
  EXPECT_THAT(refusal(GgufWriter().pair("key", 255, "12345678").bytes()), HasSubstr("unknown value type 255"));
  EXPECT_THAT(array(9, 1, "0123456789abcdef"), HasSubstr("arrays of arrays"));
  EXPECT_THAT(array(99, 1, "0123456789abcdef"), HasSubstr("unknown value type 99"));
  EXPECT_NE(array(4, uint64_t{1} << 63, "1234"), "accepted");
  EXPECT_NE(array(4, (uint64_t{1} << 62) + 1, "1234"), "accepted");  // times 4 wraps to 4
  EXPECT_NE(array(8, uint64_t{1} << 61, "12345678"), "accepted");    // times 8 wraps to 0
  EXPECT_NE(array(10, 2, "12345678"), "accepted");
  EXPECT_NE(array(8, 2, gguf_string("one")), "accepted");
  for (const uint64_t length : {uint64_t{100}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 8}) {
    EXPECT_NE(refusal(GgufWriter().pair("key", 8, gguf_string("text", length)).bytes()), "accepted") << length;
  }
  EXPECT_THAT(refusal(GgufWriter().pair("key", 7, raw(uint8_t{2})).bytes()), HasSubstr("neither 0 nor 1"));
}

// S2
TEST(Gguf, AlignmentMustBeAUsefulPowerOfTwo) {
  for (const uint32_t value : {0U, 1U, 3U, 48U, 1U << 31}) {
    EXPECT_THAT(refusal(GgufWriter().u32("general.alignment", value).bytes()), HasSubstr("power of two")) << value;
  }
  EXPECT_NE(refusal(GgufWriter().string("general.alignment", "32").bytes()), "accepted");
  GgufWriter wide;
  wide.alignment = 64;
  EXPECT_TRUE(parse(wide.u32("general.alignment", 64).zeros("a", {3}).zeros("b", {3}).bytes()).ok());
}

TEST(Gguf, TensorNamesThatLie) {
  EXPECT_NE(refusal(GgufWriter().zeros("", {1}).bytes()), "accepted");
  EXPECT_NE(refusal(GgufWriter().zeros(std::string(64, 'n'), {1}).bytes()), "accepted");
  EXPECT_NE(refusal(GgufWriter().zeros(std::string(1 << 20, 'n'), {1}).bytes()), "accepted");
  EXPECT_TRUE(parse(GgufWriter().zeros(std::string(63, 'n'), {1}).bytes()).ok());
  EXPECT_THAT(refusal(GgufWriter().zeros("t", {1}).zeros("t", {1}).bytes()), HasSubstr("there twice"));
}

// S1, S2
TEST(Gguf, TensorShapesThatLie) {
  const auto shape = [](const std::vector<uint64_t>& dims, uint32_t type = 0) {
    return refusal(GgufWriter().tensor("t", dims, type, std::string(64, 'x')).bytes());
  };
  EXPECT_THAT(shape({}), HasSubstr("dimensions"));
  EXPECT_THAT(shape({1, 1, 1, 1, 1}), HasSubstr("dimensions"));
  EXPECT_THAT(
      refusal(GgufWriter().raw_tensor(gguf_string("t") + raw(uint32_t{255}) + std::string(64, '\1'), "").bytes()),
      HasSubstr("255 dimensions"));
  EXPECT_THAT(shape({0}), HasSubstr("dimension 0"));
  EXPECT_THAT(shape({4, 0}), HasSubstr("dimension 0"));
  EXPECT_NE(shape({~uint64_t{0}}), "accepted");
  EXPECT_NE(shape({uint64_t{1} << 62}), "accepted");                     // times 4 bytes wraps to 0
  EXPECT_NE(shape({(uint64_t{1} << 62) + 4}), "accepted");               // times 4 bytes wraps to 16
  EXPECT_NE(shape({uint64_t{1} << 32, uint64_t{1} << 32}), "accepted");  // the product wraps to 0
  EXPECT_NE(shape({(uint64_t{1} << 32) + 1, (uint64_t{1} << 32) + 1, 1}), "accepted");
  EXPECT_THAT(shape({33}, 2), HasSubstr("multiple of 32"));
  EXPECT_THAT(shape({32 * 9}, 12), HasSubstr("multiple of 256"));
}

TEST(Gguf, TensorTypesThatAreUnknown) {
  const std::pair<uint32_t, const char*> types[] = {
      {43, "has the unknown type 43"},
      {4, "has type Q4_2 (4), which GGUF no longer has"},
      {5, "has type Q4_3 (5), which GGUF no longer has; convert the model again"},
      {31, "has type Q4_0_4_4 (31), which GGUF no longer has"},
      {139, "has type IQ4_K (139), which only ik_llama.cpp has"},
      {99, "has type 99, which only ik_llama.cpp has"},
      {255, "has type 255 (with interleaved rows), which only ik_llama.cpp has"},
      {0xFFFFFFFF, "which only ik_llama.cpp has"},
  };
  for (const auto& [type, message] : types) {
    EXPECT_THAT(refusal(GgufWriter().tensor("odd", {32}, type, std::string(64, 'x')).bytes()),
                AllOf(HasSubstr(R"(tensor "odd")"), HasSubstr(message)));
  }
}

// S3
TEST(Gguf, TensorPlacesThatLie) {
  const auto at = [](uint64_t offset) {
    return refusal(GgufWriter().zeros("first", {8}).tensor("t", {8}, 0, std::string(32, 'x'), offset).bytes());
  };
  EXPECT_THAT(at(33), HasSubstr("unaligned"));
  EXPECT_THAT(at(0), HasSubstr("overlaps"));
  EXPECT_THAT(at(64), HasSubstr("cut short"));
  EXPECT_THAT(at(1 << 20), HasSubstr("cut short"));
  EXPECT_THAT(at(~uint64_t{31}), HasSubstr("cut short"));
  EXPECT_EQ(at(32), "accepted");
}

TEST(Gguf, UnusedBytesBetweenTensorsAreNoError) {
  const std::string bytes = GgufWriter().zeros("a", {8}).raw_tensor("", std::string(64, 'x')).zeros("b", {8}).bytes();
  std::string two = bytes;
  two.replace(8, 8, raw(uint64_t{2}));

  const Gguf gguf = parse(two).value();

  EXPECT_EQ(gguf.find_tensor("b")->bytes.data() - gguf.find_tensor("a")->bytes.data(), 96);
}

}  // namespace
}  // namespace quern
