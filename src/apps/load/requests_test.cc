// What the load generator sends, and when.
#include "apps/load/requests.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "apps/load/report.h"
#include "base/testing.h"

namespace quern {
namespace {

using ::testing::AllOf;
using ::testing::DoubleEq;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;

/// Standard deviation of the gaps over their mean.
double variation(const std::vector<double>& times) {
  std::vector<double> gaps(times.size());
  std::adjacent_difference(times.begin(), times.end(), gaps.begin());
  const LoadSpread spread = spread_of(gaps, {});
  return spread.deviation / spread.mean;
}

TEST(Arrivals, HaveTheirRateAndBurstiness) {
  constexpr int count = 20'000;
  ArrivalOptions options;
  options.rate = 50.0;
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    options.burstiness = burstiness;

    const std::vector<double> times = arrival_times(options, count, 7);

    EXPECT_NEAR(times.back(), count / options.rate, 1e-6);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_NEAR(variation(times), 1.0 / std::sqrt(burstiness), 0.05 / std::sqrt(burstiness));
  }
  EXPECT_NE(arrival_times(options, 10, 1), arrival_times(options, 10, 2));
  EXPECT_EQ(arrival_times(options, 10, 1), arrival_times(options, 10, 1));
}

TEST(Arrivals, AreEvenOrAllAtOnce) {
  ArrivalOptions options;
  EXPECT_THAT(arrival_times(options, 3, 1), Each(0.0));

  options.rate = 4.0;
  options.burstiness = std::numeric_limits<double>::infinity();
  EXPECT_THAT(arrival_times(options, 3, 1), ElementsAre(DoubleEq(0.25), DoubleEq(0.5), DoubleEq(0.75)));
}

TEST(Arrivals, RampUp) {
  ArrivalOptions options;
  options.burstiness = std::numeric_limits<double>::infinity();
  options.ramp_start = 1.0;
  options.ramp_end = 4.0;

  options.ramp = "linear";
  EXPECT_THAT(arrival_times(options, 3, 1), ElementsAre(DoubleEq(1.0), DoubleEq(1.4), DoubleEq(1.65)));
  options.ramp = "exponential";
  EXPECT_THAT(arrival_times(options, 3, 1), ElementsAre(DoubleEq(1.0), DoubleEq(1.5), DoubleEq(1.75)));
}

TEST(LoadPrompts, AreSeededRandomIds) {
  PromptOptions options;
  options.input_tokens = 40;
  options.output_tokens = 20;
  options.range_ratio = 0.5;
  options.prefix_tokens = 5;
  options.vocabulary = 64;

  const auto prompts = *make_prompts(options, 200, 3);

  ASSERT_THAT(prompts, SizeIs(200));
  std::vector<int> lengths;
  for (const LoadPrompt& prompt : prompts) {
    EXPECT_THAT(prompt.ids, Each(AllOf(Ge(32), Lt(64))));
    EXPECT_TRUE(std::equal(prompt.ids.begin(), prompt.ids.begin() + 5, prompts[0].ids.begin()));
    EXPECT_EQ(prompt.input_tokens, static_cast<int>(prompt.ids.size()));
    EXPECT_TRUE(prompt.output_tokens >= 10 && prompt.output_tokens <= 30);
    lengths.push_back(prompt.input_tokens);
  }
  EXPECT_EQ(*std::min_element(lengths.begin(), lengths.end()), 25);
  EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 65);
  EXPECT_EQ((*make_prompts(options, 200, 3))[199].ids, prompts[199].ids);
  EXPECT_NE((*make_prompts(options, 200, 4))[199].ids, prompts[199].ids);
}

TEST(LoadPrompts, RepeatPrefixesInTurn) {
  PromptOptions options;
  options.dataset = "prefix_repetition";
  options.repeated_tokens = 20;
  options.repeated_suffix = 7;
  options.prefixes = 3;

  const auto prompts = *make_prompts(options, 9, 3);

  std::set<std::vector<int32_t>> prefixes, whole;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_THAT(prompts[i].ids, SizeIs(27));
    EXPECT_EQ(prompts[i].input_tokens, 27);
    EXPECT_EQ(prompts[i].output_tokens, 128);
    const std::vector<int32_t> prefix(prompts[i].ids.begin(), prompts[i].ids.begin() + 20);
    EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), prompts[i % 3].ids.begin()));
    prefixes.insert(prefix);
    whole.insert(prompts[i].ids);
  }
  EXPECT_THAT(prefixes, SizeIs(3));
  EXPECT_THAT(whole, SizeIs(9));
}

TEST(LoadPrompts, HaveTheirLengthByATokenizer) {
  const auto tokens = LoadTokens::open(std::string(QUERN_SOURCE_DIR) + "/src/text/testdata/llama2.tokenizer.json");
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  ASSERT_EQ(tokens->around(), 1);  // a begin-of-text token
  PromptOptions options;
  options.tokens = &*tokens;
  options.input_tokens = 30;
  options.prefix_tokens = 10;
  options.words = true;

  for (const bool chat : {false, true}) {
    options.chat = chat;
    const auto prompts = *make_prompts(options, 20, 3);
    for (const LoadPrompt& prompt : prompts) {
      EXPECT_EQ(tokens->count(prompt.text), chat ? 40 : 39);
      EXPECT_EQ(prompt.input_tokens, 40);
    }
  }
}

TEST(LoadPrompts, OfFilesAreCountedByATokenizer) {
  const testing::Folder folder;
  const auto tokens = LoadTokens::open(std::string(QUERN_SOURCE_DIR) + "/src/text/testdata/llama2.tokenizer.json");
  PromptOptions options;
  options.tokens = &*tokens;
  options.dataset = "sharegpt";
  options.output_tokens = 2;  // shorter than answers that are left out when nobody says a length
  options.path = folder.write("talks", R"([{"conversations":[{"value":"one two three four"},{"value":"five"}]}])");

  const auto prompts = make_prompts(options, 1, 1);

  ASSERT_TRUE(prompts.ok()) << prompts.error().message;
  EXPECT_EQ((*prompts)[0].input_tokens, tokens->count("one two three four") + 1);
  EXPECT_EQ((*prompts)[0].output_tokens, 2);
}

TEST(LoadPrompts, ComeFromJsonLines) {
  const testing::Folder folder;
  PromptOptions options;
  options.dataset = "custom";
  options.path =
      folder.write("lines", "{\"prompt\":\"a b\",\"output_len\":7}\n\n{\"prompt\":[1,2,3],\"output_tokens\":9}\n");

  const auto prompts = *make_prompts(options, 3, 1);

  EXPECT_EQ(prompts[0].text, "a b");
  EXPECT_EQ(prompts[0].output_tokens, 7);
  EXPECT_THAT(prompts[1].ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(prompts[1].output_tokens, 9);
  EXPECT_EQ(prompts[2].text, "a b");
}

TEST(LoadPrompts, SayWhereAFileIsWrong) {
  const testing::Folder folder;
  PromptOptions options;
  options.dataset = "custom";
  options.path = folder.write("wrong", "{\"prompt\":\"a\"}\n{\"question\":\"b\"}\n");

  EXPECT_THAT(make_prompts(options, 1, 1).error().message, HasSubstr("wrong:2: there is no \"prompt\""));
  options.path = folder.write("empty", "\n");
  EXPECT_FALSE(make_prompts(options, 1, 1).ok());
  options.dataset = "sonnet";
  EXPECT_THAT(make_prompts(options, 1, 1).error().message, HasSubstr("sonnet"));
}

TEST(LoadPrompts, ComeFromConversations) {
  const testing::Folder folder;
  const std::string words(80, 'w');
  PromptOptions options;
  options.dataset = "sharegpt";
  options.path =
      folder.write("talks", fmt::format(R"([{{"conversations":[{{"value":"hi"}},{{"value":"{0}"}}]}},)"
                                        R"({{"conversations":[{{"value":"{0}!"}},{{"value":"{0}"}}]}},{{}}])",
                                        words));

  const auto prompts = *make_prompts(options, 2, 1);

  EXPECT_EQ(prompts[0].text, words + "!");  // "hi" is too short
  EXPECT_EQ(prompts[0].output_tokens, 20);
  EXPECT_EQ(prompts[1].text, words + "!");
}

TEST(LoadTarget, MakesBodies) {
  LoadTarget target;
  target.prefix = "/api";
  target.fields = Json::Object{{"model", "m"}, {"temperature", 0.0}};
  target.extra = Json::Object{{"temperature", 0.5}, {"seed", 1}};
  LoadPrompt prompt;
  prompt.ids = {5, 6};
  prompt.output_tokens = 4;

  prompt.request_id = "run-7";
  const HttpRequest completion = target.post(prompt);
  target.endpoint = "/v1/chat/completions";
  prompt.ids.clear();
  prompt.text = "say \"a\"";
  const HttpRequest chat = target.post(prompt);

  EXPECT_EQ(completion.target, "/api/v1/completions");
  EXPECT_EQ(completion.header("x-request-id"), "run-7");
  EXPECT_EQ(completion.body, R"({"model":"m","temperature":0.5,"prompt":[5,6],"max_tokens":4,"seed":1})");
  EXPECT_EQ(chat.body, R"({"model":"m","temperature":0.5,"messages":[{"role":"user","content":"say \"a\""}],)"
                       R"("max_completion_tokens":4,"seed":1})");
}

}  // namespace
}  // namespace quern
