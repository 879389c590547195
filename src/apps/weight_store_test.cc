// Matrices of 8-bit floats, as files hold them or made here: what a product with them is.
#include "apps/weight_store.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "checkpoint/testing.h"
#include "formats/half.h"
#include "ops/rows.h"
#include "ops/test_device.h"

namespace quern {
namespace {

using ::testing::HasSubstr;

/// Tensors in memory.
class TensorsInMemory final : public Checkpoint {
 public:
  void add(const std::string& name, const std::string& type, std::vector<int64_t> shape, std::vector<std::byte> bytes) {
    bytes_.push_back(std::move(bytes));
    tensors_.push_back({name, type, std::move(shape), 0, bytes_.back()});
  }
  void add_floats(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    add(name, "F32", std::move(shape), {bytes.begin(), bytes.end()});
  }

  CheckpointKind kind() const override { return CheckpointKind::safetensors; }
  const std::string& path() const override { return path_; }
  const StoredTensor* find(std::string_view name) const override {
    const auto it =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const StoredTensor& tensor) { return tensor.name == name; });
    return it == tensors_.end() ? nullptr : &*it;
  }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return none_; }
  const Json& generation_config() const override { return none_; }
  Result<std::optional<StoredVocabulary>> vocabulary() const override { return std::optional<StoredVocabulary>(); }
  void drop(std::span<const std::byte> /*bytes*/) const override {}

 private:
  std::string path_ = "fake";
  Json none_;
  std::deque<std::vector<std::byte>> bytes_;
  std::vector<StoredTensor> tensors_;
};

constexpr int cols = 256;
const std::string layer = "model.layers.0.self_attn.";

std::vector<float> random_values(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

/// Random finite 8-bit floats; `values` is what they mean.
std::vector<std::byte> random_f8(int count, unsigned seed, std::vector<float>& values) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes;
  for (int i = 0; i < count; ++i) {
    auto bits = static_cast<uint8_t>(random() % 256);
    if ((bits & 0x7FU) == 0x7FU) bits = 0;
    bytes.push_back(static_cast<std::byte>(bits));
    values.push_back(e4m3_to_f32(bits));
  }
  return bytes;
}

/// A store whose weights are in memory, and products with them.
class Store {
 public:
  explicit Store(const Checkpoint& checkpoint, Quantize quantize = Quantize::no)
      : memory_(4 << 20), store_(checkpoint, DeviceKind::cpu, aligned(), quantize) {}

  WeightStore& weights() { return store_; }
  /// A row of a packed weight.
  std::vector<float> row(const Weight& weight, int32_t id) {
    const auto device = make_device(DeviceKind::cpu, {.threads = 1}).value();
    store_.fill(*device, 1, nullptr);
    TestDevice place(1);
    Exec exec = place.exec();
    const Tensor ids = Tensor::dense(reinterpret_cast<std::byte*>(&id), Dtype::i32, 1);
    const Tensor y = embed(exec, weight, ids, 1.0F);
    return {y.as<float>(), y.as<float>() + weight.cols};
  }
  /// x W^T for one token.
  std::vector<float> multiply(const Matrix& matrix, std::vector<float> x) {
    const auto device = make_device(DeviceKind::cpu, {.threads = 1}).value();
    store_.fill(*device, 2, nullptr);
    TestDevice place(1);
    Exec exec = place.exec();
    const Tensor token = Tensor::dense(reinterpret_cast<std::byte*>(x.data()), Dtype::f32, 1, matrix.cols);
    const Tensor y = linear(exec, token, matrix);
    return {y.as<float>(), y.as<float>() + matrix.rows};
  }

 private:
  std::byte* aligned() {
    return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory_.data()) + 63) / 64 * 64);
  }

  std::vector<std::byte> memory_;
  WeightStore store_;
};

/// Row `row` of a matrix times x, value (row, col) times scale(row, col).
template <typename Scale>
double product(const std::vector<float>& values, const std::vector<float>& x, int row, Scale&& scale) {
  double sum = 0;
  for (int k = 0; k < cols; ++k) {
    sum += double{values[static_cast<size_t>(row * cols + k)]} * scale(row, k) * double{x[static_cast<size_t>(k)]};
  }
  return sum;
}

TEST(WeightStore, MultipliesRowsOfEightBitFloatsWithTheirScales) {
  TensorsInMemory checkpoint;
  std::vector<float> q, k;
  checkpoint.add(layer + "q_proj.weight", "F8_E4M3", {40, cols}, random_f8(40 * cols, 1, q));
  checkpoint.add_floats(layer + "q_proj.weight_scale", {}, {0.25F});
  checkpoint.add_floats(layer + "q_proj.input_scale", {1}, {3.0F});
  checkpoint.add(layer + "k_proj.weight", "F8_E4M3", {24, cols}, random_f8(24 * cols, 2, k));
  std::vector<std::byte> halves;
  for (int row = 0; row < 24; ++row) {
    const uint16_t bits = f32_to_bf16(0.5F * static_cast<float>(row + 1));
    halves.push_back(static_cast<std::byte>(bits & 255U));
    halves.push_back(static_cast<std::byte>(bits >> 8));
  }
  checkpoint.add(layer + "k_proj.weight_scale", "BF16", {24, 1}, halves);
  const std::vector<float> v = random_values(8 * cols, 3);
  checkpoint.add_floats(layer + "v_proj.weight", {8, cols}, v);
  Store store(checkpoint);
  const std::vector<float> x = random_values(cols, 4);

  const Matrix matrix =
      store.weights()
          .matrix({{layer + "q_proj", 40}, {layer + "k_proj", 24}, {layer + "v_proj", 8}}, cols, false)
          .value();
  const std::vector<float> y = store.multiply(matrix, x);

  EXPECT_TRUE(store.weights().check_all_used(1, "Fake").ok());
  EXPECT_EQ(matrix.parts[0].format, FormatId::f8);
  EXPECT_EQ(matrix.parts[2].format, FormatId::f32);
  for (int row = 0; row < 72; ++row) {
    double want = 0;
    if (row < 40) want = product(q, x, row, [](int, int) { return 0.25; });
    if (row >= 40 && row < 64) want = product(k, x, row - 40, [](int r, int) { return 0.5 * (r + 1); });
    if (row >= 64) want = product(v, x, row - 64, [](int, int) { return 1.0; });
    ASSERT_NEAR(y[static_cast<size_t>(row)], want, 0.05) << row;  // sums of 256 products of up to 448 * 12
  }
}

TEST(WeightStore, MultipliesBlocksWithTheirScales) {
  TensorsInMemory checkpoint;
  std::vector<float> values;
  checkpoint.add(layer + "o_proj.weight", "F8_E4M3", {200, cols}, random_f8(200 * cols, 1, values));
  checkpoint.add_floats(layer + "o_proj.weight_scale_inv", {2, 2}, {0.5F, 0.25F, 2.0F, 0.125F});
  Store store(checkpoint);
  const std::vector<float> x = random_values(cols, 4);

  const Matrix matrix = store.weights().matrix({{layer + "o_proj", 200}}, cols, false).value();
  const std::vector<float> y = store.multiply(matrix, x);

  EXPECT_EQ(matrix.parts[0].format, FormatId::f8_block);
  EXPECT_FALSE(matrix.scale);
  const double scales[2][2] = {{0.5, 0.25}, {2.0, 0.125}};
  for (int row = 0; row < 200; ++row) {
    const double want = product(values, x, row, [&](int r, int k) { return scales[r / 128][k / 128]; });
    ASSERT_NEAR(y[static_cast<size_t>(row)], want, 0.02) << row;
  }
}

// Of 192 columns the second block is half a one; [2, 1, 2, 1] is how ModelOpt's FP8_PB_WO has the scales.
TEST(WeightStore, MultipliesPartsOfBlocksWithTheirScales) {
  constexpr int few = 192;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 2}, {2, 1, 2, 1}}) {
    TensorsInMemory checkpoint;
    std::vector<float> values;
    checkpoint.add(layer + "o_proj.weight", "F8_E4M3", {160, few}, random_f8(160 * few, 1, values));
    const std::string name = shape.size() == 2 ? "o_proj.weight_scale_inv" : "o_proj.weight_scale";
    checkpoint.add_floats(layer + name, shape, {0.5F, 0.25F, 2.0F, 0.125F});
    Store store(checkpoint);
    const std::vector<float> x = random_values(few, 4);

    const auto matrix = store.weights().matrix({{layer + "o_proj", 160}}, few, false);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    const std::vector<float> y = store.multiply(*matrix, x);

    EXPECT_EQ(matrix->parts[0].format, FormatId::f8_block);
    const double scales[2][2] = {{0.5, 0.25}, {2.0, 0.125}};
    for (int row = 0; row < 160; ++row) {
      double want = 0;
      for (int k = 0; k < few; ++k) {
        const double value = values[static_cast<size_t>(row * few + k)];
        want += value * scales[row / 128][k / 128] * x[static_cast<size_t>(k)];
      }
      ASSERT_NEAR(y[static_cast<size_t>(row)], want, 0.02) << row;
    }
  }
}

TEST(WeightStore, MultipliesNvfp4WithTheScaleBesideIt) {
  const std::vector<testing::QuantCase> cases = testing::quant_cases(QUERN_SOURCE_DIR);
  const auto nvfp4 = std::find_if(cases.begin(), cases.end(), [](const auto& one) { return one.type == "NVFP4"; });
  TensorsInMemory checkpoint;
  checkpoint.add("model.layers.0.mlp.experts.up_proj.weight", "NVFP4", {2, 1, cols}, nvfp4->stored);
  checkpoint.add_floats("model.layers.0.mlp.experts.up_proj.scale", {2}, {2.0F, 0.125F});
  checkpoint.add(layer + "q_proj.weight", "NVFP4", {2, cols}, nvfp4->stored);
  checkpoint.add_floats(layer + "q_proj.scale", {1}, {0.5F});
  checkpoint.add(layer + "k_proj.weight", "NVFP4", {2, cols}, nvfp4->stored);
  Store store(checkpoint);
  const std::vector<float> x = random_values(cols, 4);
  WeightStore& weights = store.weights();

  Matrix matrix = weights.matrix({{layer + "q_proj", 2}, {layer + "k_proj", 2}}, cols, false).value();
  const WeightSlice second{"model.layers.0.mlp.experts.up_proj.weight", {2, 1, cols}, 1, 1, cols};
  matrix.parts[matrix.count++] = weights.slice(second).value();
  matrix.rows += 1;
  matrix.scale = weights.scales({matrix.parts, 3});
  const std::vector<float> y = store.multiply(matrix, x);

  EXPECT_TRUE(weights.check_all_used(1, "Fake").ok());
  const double scales[] = {0.5, 0.5, 1.0, 1.0, 0.125};
  const int rows[] = {0, 1, 0, 1, 1};
  for (size_t i = 0; i < 5; ++i) {
    const double want = product(nvfp4->floats, x, rows[i], [&](int, int) { return scales[i]; });
    ASSERT_NEAR(y[i], want, 0.5) << i;
  }
}

// Whatever a type is packed as, its rows come out as the gguf package says, bit by bit.
TEST(WeightStore, PacksEveryStoredTypeWithoutLoss) {
  at_every_isa([] {
    if (test_device_kind() != DeviceKind::cpu) return;  // stores of this file pack for the CPU
    for (const testing::QuantCase& one : testing::quant_cases(QUERN_SOURCE_DIR)) {
      const auto values = static_cast<int>(one.floats.size());
      TensorsInMemory checkpoint;
      std::vector<std::byte> stored;
      for (int row = 0; row < 3; ++row) stored.insert(stored.end(), one.stored.begin(), one.stored.end());
      checkpoint.add("table", one.type, {3, values}, stored);
      Store store(checkpoint);
      const Weight weight = store.weights().weight("table", 3, values).value();

      const std::vector<float> row = store.row(weight, 2);

      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(row[i]), std::bit_cast<uint32_t>(one.floats[i]))
            << one.type << " " << i << ": " << row[i] << ", expected " << one.floats[i];
      }
    }
  });
}

TEST(WeightStore, RefusesScalesThatDoNotFitNvfp4) {
  TensorsInMemory checkpoint;
  checkpoint.add(layer + "q_proj.weight", "NVFP4", {2, 64}, std::vector<std::byte>(72));
  checkpoint.add_floats(layer + "q_proj.scale", {2}, {1.0F, 1.0F});
  Store store(checkpoint);

  const auto matrix = store.weights().matrix({{layer + "q_proj", 2}}, 64, false);

  ASSERT_FALSE(matrix.ok());
  EXPECT_THAT(matrix.error().message, HasSubstr("which a scale of [2] of F32 does not fit"));
}

TEST(WeightStore, QuantizesLinearLayersButNotRouterAndOutput) {
  TensorsInMemory checkpoint;
  const std::vector<float> values = random_values(40 * cols, 1);
  for (const std::string& name :
       {layer + "q_proj.weight", std::string("model.layers.0.mlp.gate.weight"), std::string("lm_head.weight")}) {
    checkpoint.add_floats(name, {40, cols}, values);
  }
  Store store(checkpoint, Quantize::fp8);
  const std::vector<float> x = random_values(cols, 4);

  const Matrix matrix = store.weights().matrix({{layer + "q_proj", 40}}, cols, false).value();
  const Matrix router = store.weights().matrix({{"model.layers.0.mlp.gate", 40}}, cols, false).value();
  const Matrix output = store.weights().matrix({{"lm_head", 40}}, cols, false).value();
  const std::vector<float> y = store.multiply(matrix, x);

  EXPECT_EQ(matrix.parts[0].format, FormatId::f8);
  EXPECT_EQ(router.parts[0].format, FormatId::f32);
  EXPECT_EQ(output.parts[0].format, FormatId::f32);
  double error = 0;
  double size = 0;
  for (int row = 0; row < 40; ++row) {
    const double want = product(values, x, row, [](int, int) { return 1.0; });
    error += std::pow(double{y[static_cast<size_t>(row)]} - want, 2);
    size += want * want;
  }
  EXPECT_LT(std::sqrt(error / size), 0.04);
  EXPECT_GT(std::sqrt(error / size), 0.005);
}

TEST(WeightStore, RefusesEightBitFloatsThatItDoesNotUnderstand) {
  const auto refusal = [](const std::string& scales, std::vector<int64_t> shape) {
    TensorsInMemory checkpoint;
    std::vector<float> values;
    checkpoint.add(layer + "q_proj.weight", "F8_E4M3", {40, cols}, random_f8(40 * cols, 1, values));
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    checkpoint.add_floats(layer + "q_proj." + scales, std::move(shape),
                          std::vector<float>(static_cast<size_t>(count), 0.5F));
    Store store(checkpoint);
    const auto matrix = store.weights().matrix({{layer + "q_proj", 40}}, cols, false);
    return matrix.ok() ? "accepted" : matrix.error().message;
  };
  EXPECT_EQ(refusal("weight_scale", {40}), "accepted");
  EXPECT_THAT(refusal("other", {1}), HasSubstr("no \"weight_scale\""));
  EXPECT_THAT(refusal("weight_scale", {39}), HasSubstr("do not fit"));
  EXPECT_THAT(refusal("weight_scale_inv", {2, 2}), HasSubstr("do not fit"));

  TensorsInMemory checkpoint;
  std::vector<float> values;
  checkpoint.add("model.embed_tokens.weight", "F8_E4M3", {40, cols}, random_f8(40 * cols, 1, values));
  checkpoint.add_floats("model.embed_tokens.weight_scale", {1}, {1.0F});
  Store store(checkpoint);
  ASSERT_TRUE(store.weights().weight("model.embed_tokens.weight", 40, cols).ok());
  EXPECT_THAT(store.weights().check_all_used(1, "Fake").error().message, HasSubstr("only linear layers"));
}

TEST(WeightStore, RefusesScalesBesideWeightsThatAreNoFiniteNumbers) {
  const auto answer = [](const std::string& name, std::vector<int64_t> shape, std::vector<float> scales) {
    TensorsInMemory checkpoint;
    std::vector<float> values;
    checkpoint.add(layer + "o_proj.weight", "F8_E4M3", {256, cols}, random_f8(256 * cols, 1, values));
    checkpoint.add_floats(layer + "o_proj." + name, std::move(shape), scales);
    Store store(checkpoint);
    const auto matrix = store.weights().matrix({{layer + "o_proj", 256}}, cols, false);
    return matrix.ok() ? "accepted" : matrix.error().message;
  };
  const std::string tensor = "fake: tensor \"" + layer + "o_proj.";
  std::vector<float> of_rows(256, 0.5F);
  of_rows[255] = -INFINITY;

  EXPECT_EQ(answer("weight_scale", {1}, {0.0F}), "accepted");
  EXPECT_EQ(answer("weight_scale", {1}, {NAN}),
            tensor + "weight_scale\" has nan at [0], expected finite scales of at least 0");
  EXPECT_EQ(answer("weight_scale", {256, 1}, of_rows),
            tensor + "weight_scale\" has -inf at [255], expected finite scales of at least 0");
  EXPECT_EQ(answer("weight_scale_inv", {2, 2}, {1.0F, 1.0F, -0.5F, NAN}),
            tensor + "weight_scale_inv\" has -0.5 at [1, 0], expected finite scales of at least 0");

  TensorsInMemory checkpoint;
  checkpoint.add(layer + "q_proj.weight", "NVFP4", {2, 64}, std::vector<std::byte>(72));
  checkpoint.add_floats(layer + "q_proj.scale", {1}, {INFINITY});
  checkpoint.add_floats(layer + "k_scale", {2}, {1.0F, NAN});
  Store store(checkpoint);
  EXPECT_THAT(store.weights().matrix({{layer + "q_proj", 2}}, 64, false).error().message, HasSubstr("has inf at [0]"));
  EXPECT_EQ(store.weights().spread(layer + "k_scale", 2).error().message,
            "fake: tensor \"" + layer + "k_scale\" has nan at [1], expected finite numbers");
}

/// Where types keep a float16 scale in a block, in bytes; or the e8m0.
struct ScalePlace {
  const char* type;
  size_t first;
  uint16_t broken = 0x7E00;
};

TEST(WeightStore, RefusesBlocksWhoseScalesAreNoFiniteNumbers) {
  const ScalePlace places[] = {
      {"Q4_0", 0},   {"Q4_1", 0},   {"Q4_1", 2, 0xFC00}, {"Q5_0", 0},   {"Q5_1", 2},    {"Q8_0", 0, 0x7C00},
      {"IQ4_NL", 0}, {"Q2_0", 0},   {"Q1_0", 0},         {"TQ2_0", 64}, {"TQ1_0", 52},  {"Q2_K", 80},
      {"Q2_K", 82},  {"Q3_K", 108}, {"Q4_K", 0},         {"Q4_K", 2},   {"Q5_K", 0},    {"Q5_K", 2, 0xFC01},
      {"Q6_K", 208}, {"IQ4_XS", 0}, {"IQ3_XXS", 0},      {"IQ3_S", 0},  {"IQ2_XXS", 0}, {"IQ2_XS", 0},
      {"IQ2_S", 0},  {"IQ1_S", 0},  {"MXFP4", 0, 0xFF}};
  const std::vector<testing::QuantCase> cases = testing::quant_cases(QUERN_SOURCE_DIR);
  const auto device = make_device(DeviceKind::cpu, {.threads = 1}).value();
  for (const ScalePlace& place : places) {
    SCOPED_TRACE(place.type);
    const auto one =
        std::find_if(cases.begin(), cases.end(), [&](const auto& test) { return test.type == place.type; });
    ASSERT_NE(one, cases.end());
    const Scheme& scheme = *find_scheme(place.type);
    const auto values = static_cast<int>(one->floats.size());
    for (const bool broken : {false, true}) {
      std::vector<std::byte> stored;
      for (int row = 0; row < 3; ++row) stored.insert(stored.end(), one->stored.begin(), one->stored.end());
      const size_t last_block = stored.size() - static_cast<size_t>(scheme.block_bytes);
      if (broken) {
        stored[last_block + place.first] = static_cast<std::byte>(place.broken & 255U);
        if (place.broken > 255U) stored[last_block + place.first + 1] = static_cast<std::byte>(place.broken >> 8);
      }
      TensorsInMemory checkpoint;
      checkpoint.add("table", place.type, {3, values}, stored);
      Store store(checkpoint);
      ASSERT_TRUE(store.weights().weight("table", 3, values).ok());
      store.weights().fill(*device, 2, nullptr);

      const Status checked = store.weights().check_scales();

      const int64_t first = values - scheme.block_values;
      EXPECT_EQ(checked.ok() ? "sound" : checked.error().message,
                broken ? fmt::format("fake: tensor \"table\" has a scale that is not finite, that of the values from "
                                     "[2, {}] on",
                                     first)
                       : "sound");
    }
  }
}

TEST(WeightStore, TensorsThatAModelLeavesAreNoError) {
  TensorsInMemory checkpoint;
  checkpoint.add_floats(layer + "k_proj.weight", {1}, {1.0F});
  checkpoint.add_floats(layer + "k_proj.weight_scale", {1}, {1.0F});
  Store store(checkpoint);
  EXPECT_THAT(store.weights().check_all_used(1, "Fake").error().message, HasSubstr("has no place in a Fake"));

  store.weights().leave(layer + "k_proj.");
  EXPECT_TRUE(store.weights().check_all_used(1, "Fake").ok());
}

TEST(WeightStore, SpreadsScalesOfCachesOverHeads) {
  TensorsInMemory checkpoint;
  checkpoint.add_floats(layer + "k_scale", {}, {0.5F});
  checkpoint.add_floats(layer + "v_scale", {3, 1, 1}, {1.0F, 2.0F, 3.0F});
  Store store(checkpoint);

  const Tensor k = store.weights().spread(layer + "k_scale", 3).value();
  const Tensor v = store.weights().spread(layer + "v_scale", 3).value();
  const auto device = make_device(DeviceKind::cpu, {.threads = 1}).value();
  store.weights().fill(*device, 1, nullptr);

  EXPECT_EQ(std::vector<float>(k.as<float>(), k.as<float>() + 3), (std::vector<float>{0.5F, 0.5F, 0.5F}));
  EXPECT_EQ(std::vector<float>(v.as<float>(), v.as<float>() + 3), (std::vector<float>{1.0F, 2.0F, 3.0F}));
  EXPECT_FALSE(store.weights().spread(layer + "v_scale", 4).ok());
}

/// What the rows of a slice are, by what the file holds.
void expect_slice(const Checkpoint& checkpoint, const WeightSlice& slice, const std::function<double(int, int)>& at) {
  Store store(checkpoint);
  const Matrix matrix = store.weights().matrix_of({&slice, 1}).value();
  const std::vector<float> x = random_values(slice.cols, 9);

  const std::vector<float> y = store.multiply(matrix, x);

  for (int row = 0; row < slice.rows; ++row) {
    double expected = 0;
    double size = 0;
    for (int col = 0; col < slice.cols; ++col) {
      const double term = at(row, col) * double{x[static_cast<size_t>(col)]};
      expected += term;
      size += std::fabs(term);
    }
    EXPECT_NEAR(double{y[static_cast<size_t>(row)]}, expected, size / 256)
        << row;  // bf16 where 8-bit floats are turned
  }
}

TEST(WeightStore, EverySecondRowOfAStack) {
  TensorsInMemory checkpoint;
  const std::vector<float> values = random_values(3 * 10 * 16, 1);
  checkpoint.add_floats("model.layers.0.stack", {3, 10, 16}, values);

  expect_slice(
      checkpoint,
      {.name = "model.layers.0.stack", .shape = {3, 10, 16}, .first_row = 21, .rows = 5, .cols = 16, .step = 2},
      [&](int row, int col) { return double{values[static_cast<size_t>((21 + 2 * row) * 16 + col)]}; });
}

TEST(WeightStore, EverySecondColumnOfAStackAsRows) {
  TensorsInMemory checkpoint;
  const std::vector<float> values = random_values(3 * 16 * 24, 1);
  checkpoint.add_floats("model.layers.0.stack", {3, 16, 24}, values);

  expect_slice(checkpoint,
               {.name = "model.layers.0.stack",
                .shape = {3, 16, 24},
                .first_row = 32,
                .rows = 12,
                .cols = 16,
                .step = 2,
                .transposed = true,
                .first_column = 1},
               [&](int row, int col) { return double{values[static_cast<size_t>((32 + col) * 24 + 1 + 2 * row)]}; });
}

TEST(WeightStore, ColumnsOfEightBitFloatsInBlocksAsRows) {
  TensorsInMemory checkpoint;
  std::vector<float> values;
  checkpoint.add(layer + "kv_b_proj.weight", "F8_E4M3", {256, cols}, random_f8(256 * cols, 3, values));
  const std::vector<float> scales = {0.01F, 0.03F, 0.02F, 0.05F};
  checkpoint.add_floats(layer + "kv_b_proj.weight_scale_inv", {2, 2}, scales);

  expect_slice(checkpoint,
               {.name = layer + "kv_b_proj.weight",
                .shape = {256, cols},
                .first_row = 120,
                .rows = cols,
                .cols = 32,
                .transposed = true},
               [&](int row, int col) {
                 const int stored = 120 + col;
                 return double{values[static_cast<size_t>(stored * cols + row)]} *
                        double{scales[static_cast<size_t>(stored / 128 * 2 + row / 128)]};
               });
}

TEST(WeightStore, PartsOfAStackOfBiases) {
  TensorsInMemory checkpoint;
  checkpoint.add_floats("model.layers.0.bias", {2, 8}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  Store store(checkpoint);
  VectorSlice even{.name = "model.layers.0.bias", .rows = 2, .cols = 8, .row = 1, .size = 4, .step = 2};
  VectorSlice odd = even;
  odd.first = 1;

  const Tensor both = store.weights().vector_slices(std::array{even, odd}).value();
  const auto device = make_device(DeviceKind::cpu, {.threads = 1}).value();
  store.weights().fill(*device, 1, nullptr);

  EXPECT_THAT(std::vector<float>(both.as<float>(), both.as<float>() + 8),
              ::testing::ElementsAre(8, 10, 12, 14, 9, 11, 13, 15));
}

}  // namespace
}  // namespace quern
