// Tiny random checkpoints of every family against what transformers computed with them (tools/make_golden.py).
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "apps/loader.h"
#include "base/file.h"
#include "base/json.h"
#include "model/families/family.h"
#include "model/testing.h"
#include "ops/kernel.h"

namespace quern {
namespace {

using testing::arg_max;
using testing::Place;
using testing::Sequences;
using testing::StepPart;

const std::string folder = QUERN_SOURCE_DIR "/tests/golden/";

struct Expected {
  std::vector<int32_t> prompt;
  std::vector<int32_t> greedy;
  std::vector<int> positions;
  std::vector<std::vector<float>> logits;
};

std::vector<int32_t> integers(const Json& json) {
  std::vector<int32_t> out;
  for (const Json& value : json.items()) out.push_back(static_cast<int32_t>(value.as_integer()));
  return out;
}

Expected read_expected(const std::string& name) {
  const Json json = Json::parse(read_file(folder + name + "/expected.json").value()).value();
  Expected expected{
      integers(*json.find("prompt")), integers(*json.find("greedy")), integers(*json.find("positions")), {}};
  for (const Json& row : json.find("logits")->items()) {
    expected.logits.emplace_back();
    for (const Json& value : row.items()) expected.logits.back().push_back(static_cast<float>(value.as_number()));
  }
  return expected;
}

std::string checkpoint_path(const std::string& name) {
  const std::string gguf = folder + name + "/model.gguf";
  return file_exists(gguf) ? gguf : folder + name;
}

struct Case {
  std::string name;
  Place place;
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name << " " << test.place.name(); }

class Golden : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    before_ = isa_in_force();
    device_ = GetParam().place.enter();
    if (!device_) GTEST_SKIP() << "this machine has no " << GetParam().place.name();
  }
  void TearDown() override { limit_isa(before_); }

  std::unique_ptr<Device> device_;

 private:
  Isa before_ = Isa::portable;
};

TEST_P(Golden, LogitsAndGreedyTextAreThoseOfTransformers) {
  const Expected expected = read_expected(GetParam().name);
  auto checkpoint = Checkpoint::open(checkpoint_path(GetParam().name));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  auto model = load_model(**checkpoint, *device_);
  ASSERT_TRUE(model.ok()) << model.error().message;
  Sequences sequences(*device_, model->spec, model->decoder, 1, 64, Dtype::f32);

  auto logits = sequences.step(StepPart{0, expected.prompt, expected.positions});
  for (size_t i = 0; i < logits.size(); ++i) {
    ASSERT_EQ(logits[i].size(), expected.logits[i].size());
    for (size_t v = 0; v < logits[i].size(); ++v) {
      ASSERT_NEAR(logits[i][v], expected.logits[i][v], 1e-3) << "position " << expected.positions[i] << " token " << v;
    }
  }

  std::vector<int32_t> greedy;
  while (true) {
    greedy.push_back(arg_max(logits.back()));
    if (greedy.size() == expected.greedy.size()) break;
    logits = sequences.step(StepPart{0, {greedy.back()}, {0}});
  }
  EXPECT_EQ(greedy, expected.greedy);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    for (const Place& place : testing::all_places()) all.push_back({entry.path().filename().string(), place});
  }
  std::sort(all.begin(), all.end(), [](const Case& a, const Case& b) { return a.name < b.name; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name + "_" + test.param.place.name(); });

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
  EXPECT_GE(pairs, 15);
}

/// What the configuration of a checkpoint is read by.
MakeSpec family_of(const std::string& path) {
  const std::string gguf = path + "/model.gguf";
  const auto checkpoint = Checkpoint::open(file_exists(gguf) ? gguf : path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  return find_family((*checkpoint)->config().find("architectures")->items().front().as_string());
}

TEST(GoldenSet, HasEveryFamily) {
  std::set<MakeSpec> proved;
  // What makes vectors and scores is proved by apps/pooling_test.cc.
  for (const std::string& models : {folder, std::string(QUERN_SOURCE_DIR "/tests/pooling/")}) {
    for (const auto& entry : std::filesystem::directory_iterator(models)) {
      if (entry.is_directory()) proved.insert(family_of(entry.path()));
    }
  }
  for (const std::string_view architecture : known_architectures()) {
    EXPECT_TRUE(proved.contains(find_family(architecture)))
        << "tests/golden and tests/pooling have no " << architecture;
  }
}

}  // namespace
}  // namespace quern
