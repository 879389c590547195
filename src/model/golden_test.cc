// Tiny random checkpoints of every family against what transformers computed with them (tools/make_golden.py): the
// cells of the matrix whose models make text.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "apps/loader.h"
#include "base/file.h"
#include "base/json.h"
#include "model/families/family.h"
#include "model/matrix_testing.h"
#include "model/testing.h"
#include "ops/kernel.h"

namespace quern {
namespace {

using testing::arg_max;
using testing::MatrixCase;
using testing::MatrixCell;
using testing::Sequences;
using testing::StepPart;

const std::string folder = QUERN_SOURCE_DIR "/tests/golden/";

/// Where the two best tokens are nearer to each other, either may win.
constexpr float decided_margin = 0.02F;

struct Expected {
  std::vector<int32_t> prompt;
  std::vector<int32_t> greedy;
  std::vector<float> margins;  // of the steps
  std::vector<int> positions;
  std::vector<std::vector<float>> logits;
  std::map<size_t, std::vector<float>> decoded;  // after so many tokens of the greedy text
};

std::vector<int32_t> integers(const Json& json) {
  std::vector<int32_t> out;
  for (const Json& value : json.items()) out.push_back(static_cast<int32_t>(value.as_integer()));
  return out;
}

std::vector<float> numbers(const Json& json) {
  std::vector<float> out;
  for (const Json& value : json.items()) out.push_back(static_cast<float>(value.as_number()));
  return out;
}

Expected read_expected(const std::string& model) {
  const Json json = Json::parse(read_file(model + "/expected.json").value()).value();
  Expected expected{.prompt = integers(*json.find("prompt")),
                    .greedy = integers(*json.find("greedy")),
                    .margins = {},
                    .positions = integers(*json.find("positions")),
                    .logits = {},
                    .decoded = {}};
  // Where there is one number, it is the smallest, and was found large enough.
  const Json& margin = *json.find("margin");
  expected.margins = margin.is_array() ? numbers(margin) : std::vector<float>(expected.greedy.size(), decided_margin);
  for (const Json& row : json.find("logits")->items()) expected.logits.push_back(numbers(row));
  for (const Json& row : json.find("decoded")->items()) {
    expected.decoded[static_cast<size_t>(*row.integer("tokens"))] = numbers(*row.find("logits"));
  }
  return expected;
}

class Golden : public ::testing::TestWithParam<MatrixCase> {
 protected:
  void SetUp() override {
    before_ = isa_in_force();
    device_ = GetParam().place.enter();
    if (!device_) GTEST_SKIP() << "this machine has no " << GetParam().place.name() << "; its other places stand in";
  }
  void TearDown() override { limit_isa(before_); }

  Result<LoadedModel> load() {
    const auto checkpoint = Checkpoint::open(GetParam().cell.path());
    if (!checkpoint.ok()) return checkpoint.error();
    return load_model(**checkpoint, *device_);
  }

  std::unique_ptr<Device> device_;

 private:
  Isa before_ = Isa::portable;
};

float largest_difference(const std::vector<float>& got, const std::vector<float>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  float worst = 0.0F;
  for (size_t v = 0; v < std::min(got.size(), wanted.size()); ++v) {
    const float difference = std::fabs(got[v] - wanted[v]);
    if (!(difference <= worst)) worst = difference;  // so that what is not a number is seen
  }
  return worst;
}

TEST_P(Golden, LogitsAndGreedyTextAreThoseOfTransformers) {
  const MatrixCell& cell = GetParam().cell;
  const Expected expected = read_expected(cell.folder());
  auto model = load();
  ASSERT_TRUE(model.ok()) << model.error().message;
  Sequences sequences(*device_, model->spec, model->decoder, 1, 64, Dtype::f32);

  auto logits = sequences.step(StepPart{0, expected.prompt, expected.positions});
  float worst = 0.0F;
  float worst_decoded = 0.0F;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float difference = largest_difference(logits[i], expected.logits[i]);
    if (!(difference <= worst)) worst = difference;
  }
  EXPECT_GE(expected.decoded.size(), 2U);
  for (size_t step = 0; step < expected.greedy.size(); ++step) {
    if (const auto row = expected.decoded.find(step); row != expected.decoded.end()) {
      const float difference = largest_difference(logits.back(), row->second);
      if (!(difference <= worst_decoded)) worst_decoded = difference;
    }
    if (expected.margins[step] >= decided_margin) {
      EXPECT_EQ(arg_max(logits.back()), expected.greedy[step]) << "step " << step;
    }
    logits = sequences.step(StepPart{0, {expected.greedy[step]}, {0}});
  }
  const std::string result = fmt::format("{:.1e}, decoded {:.1e}", worst, worst_decoded);
  testing::print_cell(cell, GetParam().place.name(), result);
  // Products with Q8_0 are of activations in 16 bits.
  const float most = cell.form == "q8_0" ? 5e-3F : 1e-3F;
  EXPECT_LE(worst, most);
  EXPECT_LE(worst_decoded, most);
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(testing::matrix_cases("golden")),
                         [](const auto& test) { return test.param.name(); });

class GoldenInSixteenBits : public Golden {};

/// Without experts, where the choice of a router may be another.
bool is_dense(const DecoderSpec& spec) {
  return std::none_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    return std::holds_alternative<MoeSpec>(layer.ffn) || std::holds_alternative<FfnWithExpertsSpec>(layer.ffn);
  });
}

TEST_P(GoldenInSixteenBits, TheRightTokensAreNearTheTop) {
  const MatrixCell& cell = GetParam().cell;
  const Expected expected = read_expected(cell.folder());
  auto model = load();
  ASSERT_TRUE(model.ok()) << model.error().message;
  Sequences sequences(*device_, model->spec, model->decoder, 1, 64, Dtype::bf16, Dtype::bf16);

  auto logits = sequences.step(StepPart{0, expected.prompt, expected.positions});
  float worst = 0.0F;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float difference = largest_difference(logits[i], expected.logits[i]);
    if (!(difference <= worst)) worst = difference;
  }
  float behind = 0.0F;
  for (const int32_t token : expected.greedy) {
    const std::vector<float>& last = logits.back();
    behind = std::max(behind, last[static_cast<size_t>(arg_max(last))] - last[static_cast<size_t>(token)]);
    logits = sequences.step(StepPart{0, {token}, {0}});
  }
  testing::print_cell(cell, GetParam().place.name() + " in bfloat16",
                      fmt::format("{:.1e}, right tokens behind the best by {:.1e}", worst, behind));
  EXPECT_TRUE(std::isfinite(worst));
  if (!is_dense(model->spec)) return;  // a router's choice may be another expert, whose logits are as right
  EXPECT_LE(worst, 0.3F);
  EXPECT_LE(behind, 0.5F);
}

std::vector<MatrixCase> gpu_cases() {
  std::vector<MatrixCase> all = testing::matrix_cases("golden");
  std::erase_if(all,
                [](const MatrixCase& one) { return one.place.device == DeviceKind::cpu || one.cell.form != "bf16"; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenInSixteenBits, ::testing::ValuesIn(gpu_cases()),
                         [](const auto& test) { return test.param.name(); });

/// The description of a model, and every number of its layers.
std::string spelled_out(const std::string& path) {
  const auto spec = make_spec(Json::parse(read_file(path).value()).value());
  if (!spec.ok()) return spec.error().message;
  std::string out = describe(*spec);
  for (const LayerSpec& layer : spec->layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr) continue;
    for (const float inverse : attention->rope.inverse_frequencies) out += fmt::format(" {}", inverse);
  }
  return out;
}

TEST(GoldenSet, OldAndNewSpellingsOfAConfigurationAreOneModel) {
  int pairs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string older = entry.path().string() + "/config.json";
    const std::string newer = entry.path().string() + "/config.v5.json";
    if (!file_exists(newer)) continue;
    EXPECT_EQ(spelled_out(older), spelled_out(newer)) << older;
    ++pairs;
  }
  EXPECT_GE(pairs, 36);
}

TEST(Matrix, HasEveryFamilyAndSaysWhatIsMissing) {
  std::set<std::string> families;
  std::set<std::string> checkpoints;
  for (const MatrixCell& cell : testing::matrix()) {
    families.insert(cell.family);
    checkpoints.insert(cell.checkpoint);
    EXPECT_NE(cell.checkpoint.empty(), cell.none.empty()) << cell.family << " " << cell.files;
    if (!cell.none.empty()) testing::print_cell(cell, "-", "none: " + cell.none);
  }
  for (const std::string_view architecture : known_architectures()) {
    EXPECT_TRUE(families.contains(std::string(architecture))) << architecture << ": run tools/make_models_table";
  }
  for (const std::string models : {"golden", "pooling"}) {
    for (const auto& entry : std::filesystem::directory_iterator(testing::tests_folder + models)) {
      const std::string name = models + "/" + entry.path().filename().string();
      EXPECT_TRUE(checkpoints.contains(name)) << name << ": run tools/make_models_table";
    }
  }
}

/// Families without a checkpoint of their own are read by what reads one that has.
TEST(Matrix, FamiliesThatAreReadAsAnotherAreReadByTheSame) {
  const std::string as = "read as ";
  for (const MatrixCell& cell : testing::matrix()) {
    if (!cell.none.starts_with(as)) continue;
    EXPECT_EQ(find_family(cell.family), find_family(cell.none.substr(as.size()))) << cell.family;
  }
}

}  // namespace
}  // namespace quern
