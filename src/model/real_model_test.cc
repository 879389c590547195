// The built-in default model, SmolLM2-135M-Instruct, against reference values of its weights in float32.
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/hub/resolve.h"
#include "apps/instance.h"
#include "apps/loader.h"
#include "model/testing.h"
#include "ops/kernel.h"

namespace quern {
namespace {

using testing::arg_max;
using testing::Sequences;
using testing::StepPart;

/// A prompt with the greedy continuation and the five best first logits that float32 arithmetic gives.
struct Reference {
  const char* text;
  std::vector<int32_t> prompt;
  std::vector<int32_t> greedy;
  std::vector<std::pair<int32_t, float>> first;
};

const std::vector<int32_t>& system_ids() {
  static const std::vector<int32_t> ids = {1,     9690, 198,  2683, 359, 253,   5356, 5646, 11173, 3365, 3511, 308,
                                           34519, 28,   7018, 411,  407, 19712, 8182, 2,    198,   1,    4093, 198};
  return ids;
}

std::vector<int32_t> chat(const std::vector<int32_t>& question) {
  std::vector<int32_t> ids = system_ids();
  ids.insert(ids.end(), question.begin(), question.end());
  const int32_t end[] = {2, 198, 1, 520, 9531, 198};
  ids.insert(ids.end(), std::begin(end), std::end(end));
  return ids;
}

std::vector<Reference> references() {
  return {
      {"What is the capital of France?",
       chat({1780, 314, 260, 3575, 282, 4649, 47}),
       {504, 3575, 282, 4649, 314, 7042, 30, 2},
       {{504, 25.325F}, {60, 25.243F}, {15319, 24.942F}, {2219, 24.402F}, {7026, 24.315F}}},
      {"Write a haiku about the sea.",
       chat({19161, 253, 421, 30614, 563, 260, 3426, 30}),
       {504, 6147, 282, 260, 3426, 28, 253, 13879, 6122, 28, 198, 49, 9154, 303, 5082, 282, 260, 10393, 28, 198},
       {{504, 24.855F}, {788, 24.744F}, {49, 24.335F}, {60, 23.447F}, {59, 22.761F}}},
      {"List three prime numbers.",
       chat({6106, 1296, 9552, 2966, 30}),
       {33, 30, 216, 33, 198, 34, 30, 216, 34, 198, 198, 3902, 359, 260, 805, 9552, 2966, 338, 359, 441},
       {{33, 29.502F}, {504, 29.398F}, {4590, 29.316F}, {49, 28.474F}, {46012, 27.980F}}},
      {"The quick brown fox",
       {504, 2365, 6354, 16438},
       {351, 253, 2365, 6354, 7012, 30, 198, 198, 504, 2798, 6330, 314, 253, 8170, 1183, 282, 253, 4500, 26997, 34631},
       {{351, 18.155F}, {284, 15.715F}, {28, 15.488F}, {365, 15.168F}, {3365, 15.008F}}},
  };
}

class RealModel : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    before_ = isa_in_force();
    const auto path = default_model_path();
    if (!path.ok())
      GTEST_SKIP() << path.error().message << " (make test does before it runs this; models of tests/golden stand in)";
    if (!limit_isa(GetParam()))
      GTEST_SKIP() << "this processor has no " << isa_name(GetParam()) << "; the others stand in";
    device_ = make_device(DeviceKind::cpu, {}).value();
    const auto checkpoint = Checkpoint::open(*path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    auto model = load_model(**checkpoint, *device_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(model).value());
  }
  void TearDown() override { limit_isa(before_); }

  /// Without vector instructions one prompt has to do.
  static std::vector<Reference> some_references() {
    std::vector<Reference> some = references();
    if (GetParam() == Isa::portable) some.resize(1);
    return some;
  }

  std::unique_ptr<Device> device_;
  std::optional<LoadedModel> model_;

 private:
  Isa before_ = Isa::portable;
};

TEST_P(RealModel, FirstLogitsAreThoseOfFloat32AndTheCapitalOfFranceHasItsMargin) {
  for (const Reference& reference : some_references()) {
    Sequences sequences(*device_, model_->spec, model_->decoder, 1, 128);

    const auto logits =
        sequences.step(StepPart{0, reference.prompt, {static_cast<int>(reference.prompt.size()) - 1}})[0];

    float worst = 0.0F;
    for (const auto& [id, value] : reference.first) {
      worst = std::max(worst, std::fabs(logits[static_cast<size_t>(id)] - value));
    }
    const float margin =
        logits[static_cast<size_t>(reference.first[0].first)] - logits[static_cast<size_t>(reference.first[1].first)];
    fmt::print("{}: \"{}\" margin {:.4f}, worst difference from float32 {:.4f}\n", isa_name(GetParam()), reference.text,
               margin, worst);
    EXPECT_LE(worst, 0.05F) << reference.text;
    EXPECT_EQ(arg_max(logits), reference.first[0].first) << reference.text;
    EXPECT_GE(margin, 0.04F) << reference.text;
  }
}

/// Feeds the reference text; at every step its next token must be the best one, or all but.
TEST_P(RealModel, GreedyTextIsThatOfFloat32) {
  for (const Reference& reference : some_references()) {
    Sequences sequences(*device_, model_->spec, model_->decoder, 1, 128);
    StepPart all{0, reference.prompt, {static_cast<int>(reference.prompt.size()) - 1}};
    for (size_t i = 0; i + 1 < reference.greedy.size(); ++i) {
      all.outputs.push_back(static_cast<int>(all.tokens.size()));
      all.tokens.push_back(reference.greedy[i]);
    }

    const auto logits = sequences.step(all);

    for (size_t i = 0; i < logits.size(); ++i) {
      const float best = logits[i][static_cast<size_t>(arg_max(logits[i]))];
      const float wanted = logits[i][static_cast<size_t>(reference.greedy[i])];
      EXPECT_LE(best - wanted, 0.02F) << reference.text << " step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, RealModel, ::testing::Values(Isa::portable, Isa::avx2, Isa::avx512),
                         [](const auto& test) { return isa_name(test.param); });

}  // namespace
}  // namespace quern
