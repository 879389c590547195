// Safetensors files and directories: what is read, and every malformed one of the corpus that has to be refused.
#include "checkpoint/safetensors.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/mxfp4_pairs.h"
#include "checkpoint/testing.h"

namespace quern {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;
using testing::safetensors;

constexpr const char* two_tensors =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";
const std::string two_data = std::string(16, 'a') + std::string(6, 'b');

std::string refusal(const std::string& bytes) {
  auto tensors = parse_safetensors(testing::as_bytes(bytes), "m.safetensors");
  if (tensors.ok()) return "accepted";
  EXPECT_THAT(tensors.error().message, HasSubstr("m.safetensors: "));
  return tensors.error().message;
}
std::string refusal(std::string_view header, std::string_view data) { return refusal(safetensors(header, data)); }
/// One tensor "t" with these fields.
std::string one(std::string_view fields, std::string_view data = "0123456789abcdef") {
  return refusal(std::string(R"({"t":{)") + std::string(fields) + "}}", data);
}

TEST(Safetensors, ReadsTensors) {
  const std::string bytes = safetensors(two_tensors, two_data);

  const auto tensors = parse_safetensors(testing::as_bytes(bytes), "m").value();

  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].type, "F32");
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 2));
  EXPECT_EQ(tensors[1].bytes.size(), 6U);
  EXPECT_EQ(tensors[1].bytes[0], std::byte{'b'});
}

TEST(Safetensors, AcceptsWhatIsUnusualButRight) {
  EXPECT_EQ(refusal("{}", ""), "accepted");
  EXPECT_EQ(refusal(" \n\t{}  ", ""), "accepted");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[0,7],"data_offsets":[0,0])", ""), "accepted");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[],"data_offsets":[0,4])", "1234"), "accepted");
  EXPECT_EQ(one(R"("dtype":"F4","shape":[4],"data_offsets":[0,2])", "12"), "accepted");
  // Tensors in another order than their data, one of them empty.
  EXPECT_EQ(
      refusal(
          R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"e":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},)"
          R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          "123"),
      "accepted");
}

// S3
TEST(Safetensors, EveryCutOfAFileIsRefused) {
  const std::string whole = safetensors(two_tensors, two_data);
  ASSERT_EQ(refusal(whole), "accepted");
  for (size_t length = 0; length < whole.size(); ++length)
    ASSERT_NE(refusal(whole.substr(0, length)), "accepted") << length;
  EXPECT_THAT(refusal(whole + "x"), HasSubstr("1 bytes behind the last tensor"));
}

// S1, S10
TEST(Safetensors, HeadersThatLie) {
  for (const uint64_t length : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{100'000'001}, uint64_t{3}, uint64_t{0}}) {
    EXPECT_NE(refusal(safetensors("{}", "", length)), "accepted") << length;
  }
  EXPECT_THAT(refusal("[]", ""), HasSubstr("is an array"));
  EXPECT_THAT(refusal("not json", ""), HasSubstr("header: "));
  EXPECT_NE(refusal("{}x", ""), "accepted");
  EXPECT_NE(refusal(std::string_view("{}\0\0", 4), ""), "accepted");
  EXPECT_NE(refusal("{\"\xff\":1}", ""), "accepted");
  EXPECT_THAT(
      refusal(
          R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          "1"),
      HasSubstr("twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})", ""), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal(R"({"__metadata__":[]})", ""), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal(R"({"t":5})", ""), HasSubstr("is an integer"));
  EXPECT_NE(refusal(std::string(10'000, '['), ""), "accepted");
}

// S1, S2
TEST(Safetensors, TensorsThatLie) {
  EXPECT_THAT(one(R"("dtype":"F33","shape":[4],"data_offsets":[0,16])"), HasSubstr("unknown dtype"));
  EXPECT_THAT(one(R"("shape":[4],"data_offsets":[0,16])"), HasSubstr("unknown dtype"));
  EXPECT_NE(one(R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])"), "accepted");
  EXPECT_NE(one(R"("dtype":"F32","shape":4,"data_offsets":[0,16])"), "accepted");
  EXPECT_NE(one(R"("dtype":"F32","shape":[4.0],"data_offsets":[0,16])"), "accepted");
  EXPECT_NE(one(R"("dtype":"F32","shape":["4"],"data_offsets":[0,16])"), "accepted");
  EXPECT_NE(one(R"("dtype":"F32","data_offsets":[0,16])"), "accepted");
  EXPECT_NE(one(R"("dtype":"U8","shape":[2,18446744073709551614],"data_offsets":[0,16])"), "accepted");
  EXPECT_NE(one(R"("dtype":"U8","shape":[2,9223372036854775807],"data_offsets":[0,16])"), "accepted");
  EXPECT_NE(one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", ""), "accepted");
  EXPECT_NE(one(R"("dtype":"F32","shape":[4611686018427387908],"data_offsets":[0,16])"), "accepted");
  EXPECT_THAT(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,16])"),
              HasSubstr("F32 of [3] does not fit its 16 bytes"));
  EXPECT_NE(one(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])", "1"), "accepted");
  EXPECT_NE(one(R"("dtype":"F6_E2M3","shape":[5],"data_offsets":[0,4])", "1234"), "accepted");
  EXPECT_THAT(refusal(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"), HasSubstr("no name"));
}

// S3
TEST(Safetensors, OffsetsThatLie) {
  const auto offsets = [](std::string_view list) {
    return one(std::string(R"("dtype":"F32","shape":[4],"data_offsets":)") + std::string(list));
  };
  EXPECT_THAT(offsets("[16,0]"), HasSubstr("reversed"));
  EXPECT_NE(offsets("[-16,0]"), "accepted");
  EXPECT_THAT(offsets("[0,17]"), HasSubstr("cut short"));
  EXPECT_NE(offsets("[9223372036854775791,9223372036854775807]"), "accepted");
  EXPECT_NE(offsets("[0,18446744073709551615]"), "accepted");
  EXPECT_NE(offsets("[0]"), "accepted");
  EXPECT_NE(offsets("[0,16,16]"), "accepted");
  EXPECT_NE(offsets("{}"), "accepted");
  EXPECT_THAT(one(R"("dtype":"U8","shape":[15],"data_offsets":[1,16])"), HasSubstr("hole"));
  const auto pair = [](std::string_view second) {
    return refusal(
        std::string(
            R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":)") +
            std::string(second) + "}}",
        "12345678");
  };
  EXPECT_EQ(pair("[4,8]"), "accepted");
  EXPECT_THAT(pair("[3,7]"), HasSubstr("overlaps"));
  EXPECT_THAT(pair("[0,4]"), HasSubstr("overlaps"));
}

// Directories.

std::string open_refusal(const Folder& folder) {
  const auto checkpoint = Checkpoint::open(folder.path());
  return checkpoint.ok() ? "accepted" : checkpoint.error().message;
}
std::string shard(std::string_view name) {
  return safetensors(std::string(R"({")") + std::string(name) + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                     "1");
}

StoredTensor bytes_of(const std::string& name, std::vector<int64_t> shape, std::string_view bytes) {
  return {.name = name, .type = "U8", .shape = std::move(shape), .bytes = testing::as_bytes(bytes)};
}

TEST(Mxfp4Pairs, BecomeOneMatrix) {
  const std::string blocks(96, 'b');
  const std::string scales(6, 's');

  const auto joined = join_mxfp4_pairs({bytes_of("a_scales", {1, 3, 2}, scales), bytes_of("c_scales", {6}, scales),
                                        bytes_of("a_blocks", {1, 3, 2, 16}, blocks)},
                                       "m")
                          .value();

  ASSERT_EQ(joined.size(), 2U);
  EXPECT_EQ(joined[0].name, "c_scales");
  EXPECT_EQ(joined[1].name, "a.weight");
  EXPECT_EQ(joined[1].type, "MXFP4_BLOCKS");
  EXPECT_THAT(joined[1].shape, ElementsAre(1, 3, 64));
  EXPECT_EQ(joined[1].bytes.size(), 96U);
  EXPECT_EQ(joined[1].scales.size(), 6U);
}

TEST(Mxfp4Pairs, ThatDoNotFitAreRefused) {
  const std::string bytes(96, 'b');
  const auto refused = [&](std::vector<int64_t> blocks, std::vector<int64_t> scales) {
    const auto joined = join_mxfp4_pairs(
        {bytes_of("a_blocks", std::move(blocks), bytes), bytes_of("a_scales", std::move(scales), bytes)}, "m");
    return joined.ok() ? "accepted" : joined.error().message;
  };
  EXPECT_EQ(refused({1, 3, 2, 16}, {1, 3, 1}),
            "m: tensor \"a_blocks\" is [1, 3, 2, 16], expected [1, 3, 1] blocks of 16 bytes, for each of which "
            "\"a_scales\" has a scale");
  EXPECT_THAT(refused({1, 3, 4, 8}, {1, 3, 4}), HasSubstr("blocks of 16 bytes"));
  EXPECT_THAT(refused({16}, {}), HasSubstr("blocks of 16 bytes"));
}

TEST(SafetensorsDirectory, OpensOneFile) {
  const Folder folder;
  folder.write("config.json", R"({"architectures":["X"],"hidden_size":8})");
  folder.write("generation_config.json", R"({"eos_token_id":[1,2]})");
  folder.write("model.safetensors", safetensors(two_tensors, two_data));

  const auto checkpoint = Checkpoint::open(folder.path()).value();

  EXPECT_EQ(checkpoint->kind(), CheckpointKind::safetensors);
  EXPECT_EQ(checkpoint->config().integer("hidden_size"), 8);
  EXPECT_EQ(checkpoint->generation_config().dump(), R"({"eos_token_id":[1,2]})");
  EXPECT_EQ(checkpoint->find("a")->bytes.size(), 16U);
  EXPECT_EQ(checkpoint->find("c"), nullptr);
  EXPECT_EQ(checkpoint->vocabulary().value().has_value(), false);
}

TEST(SafetensorsDirectory, OpensShardsByTheirIndex) {
  const Folder folder;
  folder.write("config.json", "{}");
  folder.write("s1.safetensors", shard("a"));
  folder.write("s2.safetensors", shard("b"));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"s1.safetensors","b":"s2.safetensors"}})");

  const auto checkpoint = Checkpoint::open(folder.path()).value();

  EXPECT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_NE(checkpoint->find("a"), nullptr);
  EXPECT_NE(checkpoint->find("b"), nullptr);
  EXPECT_TRUE(checkpoint->generation_config().is_null());
}

// S8
TEST(SafetensorsDirectory, IndexesThatLie) {
  const Folder folder;
  folder.write("config.json", "{}");
  folder.write("s1.safetensors", shard("a"));
  folder.write("s2.safetensors", shard("a"));
  const auto index = [&](std::string_view text) {
    folder.write("model.safetensors.index.json", text);
    return open_refusal(folder);
  };
  EXPECT_THAT(index(R"({"weight_map":{"a":"gone.safetensors"}})"),
              HasSubstr(R"(the shard "gone.safetensors" is missing)"));
  for (const char* name : {"../s1.safetensors", "/tmp/s1.safetensors", "x/s1.safetensors", "..\\\\s1.safetensors", "",
                           ".safetensors", "s1\\u0000.safetensors", "config.json"}) {
    EXPECT_THAT(index(std::string(R"({"weight_map":{"a":")") + name + R"("}})"),
                HasSubstr("no .safetensors file of this directory"))
        << name;
  }
  EXPECT_THAT(index(R"({"weight_map":{"b":"s1.safetensors"}})"), HasSubstr("where the index has it"));
  EXPECT_THAT(index(R"({"weight_map":{"a":"s1.safetensors","b":"s2.safetensors"}})"), HasSubstr("in two shards"));
  for (const char* bad :
       {"", "[]", "{}", R"({"weight_map":{}})", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})"}) {
    EXPECT_NE(index(bad), "accepted") << bad;
  }
  EXPECT_EQ(index(R"({"weight_map":{"a":"s1.safetensors"}})"), "accepted");
}

// S7
TEST(SafetensorsDirectory, SaysWhatIsMissing) {
  const Folder folder;
  EXPECT_THAT(open_refusal(folder), HasSubstr("has no config.json"));
  folder.write("config.json", "{}");
  EXPECT_THAT(open_refusal(folder), HasSubstr("has no .safetensors file"));
  folder.write("pytorch_model.bin", "PK");
  EXPECT_THAT(open_refusal(folder), HasSubstr("never loaded"));
  folder.write("s1.safetensors", shard("a"));
  EXPECT_EQ(open_refusal(folder), "accepted");
  folder.write("s2.safetensors", shard("b"));
  EXPECT_THAT(open_refusal(folder), HasSubstr("2 .safetensors files but no model.safetensors.index.json"));
}

// S10
TEST(SafetensorsDirectory, ConfigMustBeAnObject) {
  const Folder folder;
  folder.write("model.safetensors", shard("a"));
  for (const char* bad : {"", "[]", "{", "nul", "{\"a\":1}}", "\xff"}) {
    folder.write("config.json", bad);
    EXPECT_THAT(open_refusal(folder), HasSubstr("config.json: ")) << bad;
  }
  folder.write("config.json", std::string(100'000, '[') + std::string(100'000, ']'));
  EXPECT_THAT(open_refusal(folder), HasSubstr("nested"));
}

TEST(SafetensorsDirectory, QuantizedCheckpointsAreRefusedByName) {
  const Folder folder;
  folder.write("model.safetensors", shard("a"));
  for (const std::string method : {"awq", "gptq", "compressed-tensors", "bitsandbytes"}) {
    folder.write("config.json", R"({"quantization_config":{"quant_method":")" + method + R"("}})");
    EXPECT_THAT(open_refusal(folder), AllOf(HasSubstr(method), HasSubstr("not supported")));
    folder.write("config.json", R"({"text_config":{"quantization_config":{"quant_method":")" + method + R"("}}})");
    EXPECT_THAT(open_refusal(folder), HasSubstr(method));
  }
  folder.write("config.json", R"({"quantization_config":7})");
  EXPECT_THAT(open_refusal(folder), HasSubstr("quantized"));
  folder.write("config.json", R"({"quantization_config":null})");
  EXPECT_EQ(open_refusal(folder), "accepted");
}

TEST(SafetensorsDirectory, EightBitFloatsAreKnownInTheirUsualForms) {
  const Folder folder;
  folder.write("model.safetensors", shard("a"));
  const auto opened = [&](const std::string& quantization) {
    folder.write("config.json", R"({"quantization_config":)" + quantization + "}");
    return open_refusal(folder);
  };
  const auto compressed = [](const std::string& weights, const std::string& more = "") {
    return R"({"quant_method":"compressed-tensors","format":"float-quantized",)" + more +
           R"("config_groups":{"group_0":{"targets":["Linear"],"weights":)" + weights + "}}}";
  };
  for (const std::string& known :
       {std::string(R"({"quant_method":"fp8","activation_scheme":"static"})"),
        std::string(R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]})"),
        std::string(R"({"quant_method":"fbgemm_fp8","activation_scale_ub":1200.0})"),
        std::string(R"({"quant_method":"modelopt","quant_algo":"FP8"})"),
        std::string(R"({"quant_method":"modelopt","quant_algo":"FP8_PB_WO"})"),
        compressed(R"({"num_bits":8,"type":"float","strategy":"channel"})"),
        compressed(R"({"num_bits":8,"type":"float","strategy":"block","block_structure":[128,128]})",
                   R"("sparsity_config":{"format":"dense"},)")}) {
    EXPECT_EQ(opened(known), "accepted") << known;
  }
  for (const std::string& unknown :
       {std::string(R"({"quant_method":"fp8","weight_block_size":[64,128]})"),
        std::string(R"({"quant_method":"fp8","fmt":"e5m2"})"),
        std::string(R"({"quant_method":"modelopt","quant_algo":"NVFP4"})"),
        std::string(R"({"quant_method":"compressed-tensors","format":"pack-quantized"})"),
        compressed(R"({"num_bits":4,"type":"float"})"), compressed(R"({"num_bits":8,"type":"int"})"),
        compressed(R"({"num_bits":8,"type":"float","strategy":"group"})"),
        compressed(R"({"num_bits":8,"type":"float"})", R"("transform_config":{"x":1},)")}) {
    EXPECT_THAT(opened(unknown), HasSubstr("not supported")) << unknown;
  }
}

TEST(CheckpointOpen, SaysWhatAFileIs) {
  const Folder folder;
  const auto refused = [](const std::string& path) {
    const auto checkpoint = Checkpoint::open(path);
    return checkpoint.ok() ? std::string("accepted") : checkpoint.error().message;
  };
  EXPECT_THAT(refused(folder.path() + "/nothing.gguf"), HasSubstr("No such file"));
  EXPECT_THAT(refused(folder.write("model.safetensors", shard("a"))), HasSubstr("give the directory"));
  EXPECT_THAT(refused(folder.write("model.bin", "PK\3\4")), HasSubstr("never loaded"));
  EXPECT_THAT(refused(folder.write("model.txt", "hello")), HasSubstr("is not a GGUF file"));
  EXPECT_THAT(refused(folder.write("empty", "")), HasSubstr("it is empty"));
  EXPECT_THAT(refused(folder.write("empty.gguf", "")), HasSubstr("is not a GGUF file"));
  EXPECT_THAT(refused(folder.write("renamed.dat", "GGUF")), HasSubstr("the version"));
  EXPECT_NE(refused(std::string("a\0b", 3)), "accepted");
  EXPECT_NE(refused("/dev/zero"), "accepted");
  folder.write("x.gguf", "GGUF");
  EXPECT_THAT(open_refusal(folder), HasSubstr("give the GGUF file itself"));
}

}  // namespace
}  // namespace quern
