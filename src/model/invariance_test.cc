// However a text is cut into steps and whatever runs beside it, its logits are the same, bit by bit.
#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "apps/hub/resolve.h"
#include "apps/instance.h"
#include "apps/loader.h"
#include "model/matrix_testing.h"
#include "model/testing.h"
#include "ops/kernel.h"

namespace quern {
namespace {

using testing::Place;
using testing::Sequences;
using testing::StepPart;

/// Logits of every position of a text.
using Rows = std::vector<std::vector<float>>;
/// So many further tokens of a text.
struct Piece {
  int text;
  int count;
};
using Plan = std::vector<std::vector<Piece>>;

struct Case {
  std::string name;
  Place place;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name << " " << test.place.name(); }

class Invariance : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    before_ = isa_in_force();
    device_ = GetParam().place.enter();
    if (!device_) GTEST_SKIP() << "this machine has no " << GetParam().place.name() << "; its other places stand in";
    const bool real = GetParam().name == "smollm2";
    const std::string path = real ? default_model_path().ok() ? *default_model_path() : ""
                                  : QUERN_SOURCE_DIR "/tests/golden/" + GetParam().name;
    if (path.empty())
      GTEST_SKIP() << default_model_path().error().message << " (make test does; models of tests/golden stand in)";
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    auto model = load_model(**checkpoint, *device_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(model).value());

    std::mt19937 random(5);
    for (const int length : real ? std::vector<int>{24, 9} : std::vector<int>{280, 79, 45}) {
      std::vector<int32_t> tokens(static_cast<size_t>(length));
      for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<unsigned>(model_->spec.vocab));
      texts_.push_back(tokens);
    }
    // The truth: each text alone, whole, in one step.
    for (int text = 0; text < texts(); ++text) {
      whole_.push_back(run(*device_, {{{text, length(text)}}})[static_cast<size_t>(text)]);
    }
  }
  void TearDown() override { limit_isa(before_); }

  int texts() const { return static_cast<int>(texts_.size()); }
  int length(int text) const { return static_cast<int>(texts_[static_cast<size_t>(text)].size()); }

  /// Runs a plan; logits of all positions that it computes, by text.
  std::vector<Rows> run(Device& device, const Plan& plan) const {
    Sequences sequences(device, model_->spec, model_->decoder, texts(), 320);
    std::vector<Rows> out(texts_.size());
    for (const std::vector<Piece>& step : plan) {
      std::vector<StepPart> slices;
      for (const Piece& piece : step) {
        const int row = texts() - 1 - piece.text;
        const auto begin = texts_[static_cast<size_t>(piece.text)].begin() + sequences.length(row);
        slices.push_back({row, {begin, begin + piece.count}, std::vector<int>(static_cast<size_t>(piece.count))});
        std::iota(slices.back().outputs.begin(), slices.back().outputs.end(), 0);
      }
      Rows logits = sequences.step(slices);
      auto next = logits.begin();
      for (const Piece& piece : step) {
        Rows& rows = out[static_cast<size_t>(piece.text)];
        rows.insert(rows.end(), next, next + piece.count);
        next += piece.count;
      }
    }
    return out;
  }

  void expect_the_same(const std::vector<Rows>& actual) const {
    for (size_t text = 0; text < texts_.size(); ++text) {
      ASSERT_EQ(actual[text].size(), texts_[text].size());
      for (size_t i = 0; i < texts_[text].size(); ++i) {
        const std::vector<float>& wanted = whole_[text][i];
        ASSERT_EQ(std::memcmp(actual[text][i].data(), wanted.data(), wanted.size() * sizeof(float)), 0)
            << "text " << text << " position " << i;
      }
    }
  }

  /// Every text in turn, in pieces of `size`.
  Plan chunks(int size) const {
    Plan plan;
    for (int text = 0; text < texts(); ++text) {
      for (int done = 0; done < length(text); done += size)
        plan.push_back({{text, std::min(size, length(text) - done)}});
    }
    return plan;
  }

  std::unique_ptr<Device> device_;
  std::optional<LoadedModel> model_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<Rows> whole_;

 private:
  Isa before_ = Isa::portable;
};

TEST_P(Invariance, InChunksOfAnySize) {
  for (const int size : {7, 16, 50}) expect_the_same(run(*device_, chunks(size)));
}

TEST_P(Invariance, TokenByToken) { expect_the_same(run(*device_, chunks(1))); }

TEST_P(Invariance, AllInOneStepWithAnyNumberOfThreads) {
  Plan plan(1);
  for (int text = 0; text < texts(); ++text) plan[0].push_back({text, length(text)});

  for (const int threads : {1, 2, 3}) {
    const auto device = GetParam().place.enter(threads);
    expect_the_same(run(*device, plan));
  }
}

/// Everything that nobody has written is no number (model/testing.h), so reading it would show.
TEST_P(Invariance, C10C22InRandomMixturesOfPromptsAndSingleTokens) {
  for (unsigned seed = 0; seed < 2; ++seed) {
    std::mt19937 random(seed);
    std::vector<int> left;
    for (int text = 0; text < texts(); ++text) left.push_back(length(text));
    Plan plan;
    while (std::accumulate(left.begin(), left.end(), 0) > 0) {
      std::vector<Piece> step;
      for (int text = 0; text < texts(); ++text) {
        int& rest = left[static_cast<size_t>(text)];
        const int most = random() % 2 == 0 ? 1 : 50;
        const int count = std::min(rest, static_cast<int>(random() % static_cast<unsigned>(most + 1)));
        if (count > 0) step.push_back({text, count});
        rest -= count;
      }
      std::shuffle(step.begin(), step.end(), random);
      if (!step.empty()) plan.push_back(step);
    }

    SCOPED_TRACE(seed);
    expect_the_same(run(*device_, plan));
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Place& place : testing::all_places()) {
    for (const std::string& name : testing::golden_models()) all.push_back({name, place});
    const bool scalar = place.device == DeviceKind::cpu && place.isa == Isa::portable;
    if (!scalar) all.push_back({"smollm2", place});  // quantized weights; too slow without vectors
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, Invariance, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name + "_" + test.param.place.name(); });

}  // namespace
}  // namespace quern
