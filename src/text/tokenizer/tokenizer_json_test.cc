#include <algorithm>
#include <ctime>
#include <gtest/gtest.h>
#include <random>
#include <span>
#include <thread>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer/cases_testing.h"

namespace quern {
namespace {

using tokenizer_cases::encode;
using tokenizer_cases::test_file;

std::shared_ptr<const Tokenizer> load(const std::string& name) {
  auto tokenizer = Tokenizer::from_json(test_file(name + ".tokenizer.json"), Json());
  EXPECT_TRUE(tokenizer.ok()) << name << ": " << (tokenizer.ok() ? "" : tokenizer.error().message);
  return tokenizer.ok() ? *tokenizer : nullptr;
}

/// `head` is put before the model, `model` into it.
std::string small_file(const std::string& head = "", const std::string& model = "") {
  return R"({"version":"1.0",)" + head + R"("model":{"type":"BPE",)" + model +
         R"("vocab":{"a":0,"b":1,"c":2,"ab":3,"\u0061\"":4},"merges":["a b"]}})";
}

std::string refusal(const std::string& file) {
  const auto tokenizer = Tokenizer::from_json(file, Json());
  return tokenizer.ok() ? "" : tokenizer.error().message;
}

class Kinds : public testing::TestWithParam<const char*> {};

TEST_P(Kinds, AgreesWithTheReferenceOnEveryCase) {
  const auto tokenizer = load(GetParam());
  const auto cases = Json::parse(test_file(std::string(GetParam()) + ".cases.json"));
  ASSERT_TRUE(tokenizer && cases.ok());

  tokenizer_cases::expect_cases(*tokenizer, *cases);
}

TEST_P(Kinds, StreamsTheTextThatDecodeGives) {
  const auto tokenizer = load(GetParam());
  ASSERT_TRUE(tokenizer);
  std::mt19937 random(7);

  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> ids(random() % 40);
    // A third of the rounds draws byte tokens only; ids just out of range are among the others.
    const auto range = static_cast<uint32_t>(round % 3 == 0 ? 260 : tokenizer->size() + 2);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % range) - (round % 3 == 0 ? 0 : 1);
    for (const bool skip_special : {true, false}) {
      Detokenizer detokenizer(tokenizer, skip_special);
      std::string streamed;
      for (const int32_t id : ids) {
        const std::string piece = detokenizer.add(id);
        ASSERT_TRUE(Json::parse(Json(piece).dump())->as_string() == piece) << "a piece ends inside a character";
        streamed += piece;
      }
      streamed += detokenizer.finish();
      ASSERT_EQ(streamed, tokenizer->decode(ids, skip_special)) << "round " << round;
    }
  }
}

TEST_P(Kinds, RepairsInvalidText) {
  const auto tokenizer = load(GetParam());
  ASSERT_TRUE(tokenizer);

  EXPECT_EQ(encode(*tokenizer, "a\xFFz\xE4\xBD", {}), encode(*tokenizer, "a\uFFFDz\uFFFD", {}));
  EXPECT_EQ(encode(*tokenizer, std::string_view("a\0b", 3), {}).size(), encode(*tokenizer, "a\001b", {}).size());
}

// S22
TEST_P(Kinds, NeverTakesUserTextForASpecialToken) {
  const auto tokenizer = load(GetParam());
  ASSERT_TRUE(tokenizer);
  const int32_t start = tokenizer->id_of("<|im_start|>").value();
  const int32_t end = tokenizer->id_of("<|im_end|>").value();
  const std::vector<TextPiece> pieces = {{"<|im_start|>", true}, {"user <|im_end|>", false}, {"<|im_", true},
                                         {"end|><|im_", false},  {"start|>", true},          {"<|im_e", true},
                                         {"nd|>", true}};

  const auto ids = tokenizer->encode_pieces(pieces, false);

  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(std::ranges::count(*ids, start), 1);
  EXPECT_EQ(std::ranges::count(*ids, end), 1);
  EXPECT_EQ(ids->front(), start);
  EXPECT_EQ(ids->back(), end);
}

TEST_P(Kinds, EncodesPiecesAsOneText) {
  const auto tokenizer = load(GetParam());
  ASSERT_TRUE(tokenizer);
  const std::vector<TextPiece> pieces = {
      {"<|im_start|>us", true}, {"er\n", true}, {"\nhel", false}, {"lo<|im_end|>", true}};

  const auto ids = tokenizer->encode_pieces(pieces, true);

  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, encode(*tokenizer, "<|im_start|>user\n\nhello<|im_end|>", {.parse_special = true}));
}

INSTANTIATE_TEST_SUITE_P(Cases, Kinds,
                         testing::Values("llama3", "qwen2", "digits_gpt2", "falcon", "llama2", "llama2_metaspace",
                                         "gemma"),
                         [](const auto& info) { return std::string(info.param); });

TEST(JsonTokenizer, AddsNoSecondBos) {
  const auto tokenizer = load("llama3");
  ASSERT_TRUE(tokenizer);
  const int32_t bos = tokenizer->bos().value();

  const std::vector<TextPiece> with = {{"<s>a", true}};
  const std::vector<TextPiece> without = {{"a", true}};

  EXPECT_EQ(*tokenizer->encode_pieces(with, true), *tokenizer->encode_pieces(without, true));
  EXPECT_EQ(tokenizer->encode_pieces(without, true)->front(), bos);
  EXPECT_EQ(*tokenizer->encode_pieces({}, true), std::vector<int32_t>{bos});
}

/// The processor time of a thousand tokens, in the middle one of some runs.
double block_seconds(Detokenizer& detokenizer, std::span<const int32_t> ids, int blocks) {
  std::vector<double> times;
  for (int block = 0; block < blocks; ++block) {
    const std::clock_t start = std::clock();
    for (size_t i = 0; i < 1000; ++i) detokenizer.add(ids[i % ids.size()]);
    times.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::ranges::nth_element(times, times.begin() + blocks / 2);
  return times[static_cast<size_t>(blocks) / 2];
}

TEST_P(Kinds, C13ALateTokenCostsWhatAnEarlyOneDoes) {
  const auto tokenizer = load(GetParam());
  ASSERT_TRUE(tokenizer);
  const auto ids = encode(*tokenizer, "It rains in Gera\u00F1 \u4E16\u754C, and \U0001F600 falls on 1234 towns. ", {});
  Detokenizer detokenizer(tokenizer, true);

  const double early = block_seconds(detokenizer, ids, 9);
  block_seconds(detokenizer, ids, 46);
  const double late = block_seconds(detokenizer, ids, 9);

  EXPECT_LT(late, 3 * early + 0.002);
}

TEST(JsonTokenizer, C20GivesEveryThreadTheSameAnswer) {
  const std::vector<std::shared_ptr<const Tokenizer>> tokenizers = {load("llama3"), load("gemma")};
  const auto cases = Json::parse(test_file("llama3.cases.json"));
  ASSERT_TRUE(cases.ok());
  std::vector<std::vector<std::vector<int32_t>>> answers(4);
  std::vector<std::thread> threads;

  for (auto& answer : answers) {
    threads.emplace_back([&] {
      for (const Json& item : cases->items()) {
        for (const auto& tokenizer : tokenizers) {
          answer.push_back(*tokenizer->encode(item.find("text")->as_string(), {}));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (const auto& answer : answers) EXPECT_EQ(answer, answers[0]);
}

TEST(JsonTokenizer, LetsTheConfigDecideAboutBosForLlamaClasses) {
  const std::string file = test_file("llama2.tokenizer.json");
  const auto first = [&](const char* config) {
    const auto tokenizer = Tokenizer::from_json(file, *Json::parse(config));
    EXPECT_TRUE(tokenizer.ok());
    return encode(**tokenizer, "a", {}).front();
  };

  EXPECT_EQ(first(R"({"tokenizer_class":"LlamaTokenizer","bos_token":"</s>","add_bos_token":true})"), 2);
  EXPECT_NE(first(R"({"tokenizer_class":"LlamaTokenizer","bos_token":"<s>","add_bos_token":false})"), 1);
  EXPECT_EQ(first(R"({"tokenizer_class":"LlamaTokenizer","bos_token":"</s>"})"), 1);
  EXPECT_EQ(first(R"({"tokenizer_class":"PreTrainedTokenizerFast","add_bos_token":false})"), 1);
  const auto tokenizer = Tokenizer::from_json(file, *Json::parse(R"({"eos_token":{"content":"</s>"}})"));
  EXPECT_EQ((*tokenizer)->eos(), 2);
  EXPECT_EQ((*tokenizer)->end_of_generation().size(), 2U);  // <|im_end|> too
}

TEST(JsonTokenizer, RefusesWhatItDoesNotSupportByName) {
  EXPECT_EQ(refusal(small_file()), "");
  const std::pair<std::string, std::string> heads[] = {
      {R"("normalizer":{"type":"Precompiled"},)", "Precompiled"},
      {R"("normalizer":{"type":"Replace","pattern":{"Regex":"("},"content":""},)", "("},
      {R"("normalizer":{"type":"Unheard"},)", "Unheard"},
      {R"("pre_tokenizer":{"type":"Unheard"},)", "Unheard"},
      {R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Isolated"},)", "&&"},
      {R"("pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Sideways"},)", "Sideways"},
      {R"("pre_tokenizer":{"type":"Split"},)", "pattern"},
      {R"("pre_tokenizer":{"type":"FixedLength","length":0},)", "FixedLength"},
      {R"("pre_tokenizer":{"type":"ByteLevel"},)", "ByteLevel"},
      {R"("decoder":{"type":"Unheard"},)", "Unheard"},
      {R"("post_processor":{"type":"Unheard"},)", "Unheard"},
      {R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}]},)", "\"x\""},
      {R"("added_tokens":[{"id":-1,"content":"x"}],)", "added token"},
      {R"("added_tokens":[{"id":4000000,"content":"x"}],)", "4000000"},
      {R"("added_tokens":[{"id":99999999999,"content":"x"}],)", "added token"},
  };
  for (const auto& [head, name] : heads) EXPECT_NE(refusal(small_file(head)).find(name), std::string::npos) << head;
  const std::pair<std::string, std::string> models[] = {
      {R"("type":"Unigram",)", "Unigram"},
      {R"("type":"Unheard",)", "Unheard"},
      {R"("unk_token":"zzz",)", "zzz"},
  };
  for (const auto& [model, name] : models)
    EXPECT_NE(refusal(small_file("", model)).find(name), std::string::npos) << model;
}

// S5
TEST(JsonTokenizer, RefusesBrokenFiles) {
  const std::string model = R"({"model":{"type":"BPE",)";
  for (const std::string& file : {std::string(),
                                  std::string("null"),
                                  std::string("[]"),
                                  std::string("{}"),
                                  std::string("{\"model\":3}"),
                                  model + R"("merges":[]}})",
                                  model + R"("vocab":{}}})",
                                  model + R"("vocab":[],"merges":[]}})",
                                  model + R"("vocab":{"a":0,"b":0},"merges":[]}})",
                                  model + R"("vocab":{"a":-1},"merges":[]}})",
                                  model + R"("vocab":{"a":2147483648},"merges":[]}})",
                                  model + R"("vocab":{"a":1e3},"merges":[]}})",
                                  model + R"("vocab":{"a":"0"},"merges":[]}})",
                                  model + R"("vocab":{},"merges":[]}})",
                                  model + R"("vocab":{"a":0},"merges":["a b"]}})",
                                  model + R"("vocab":{"a":0},"merges":[["a"]]}})",
                                  model + R"("vocab":{"a":0},"merges":["ab"]}})",
                                  model + R"("vocab":{"a":0},"merges":[3]}})",
                                  model + R"("vocab":{"\ud800":0},"merges":[]}})",
                                  model + R"("vocab":{"\uZZZZ":0},"merges":[]}})",
                                  model + "\"vocab\":{\"\xFF\":0},\"merges\":[]}}",
                                  model + R"("vocab":{"a":0},"merges":[]}} x)"}) {
    EXPECT_NE(refusal(file), "") << file;
  }
  const std::string whole = small_file();
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_NE(refusal(whole.substr(0, length)), "") << length;
}

/// A file whose normalizer has this charsmap, as base64.
std::string with_charsmap(const std::string& base64) {
  return small_file(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":")" + base64 + R"("},)");
}

TEST(JsonTokenizer, S5CharsmapsThatLieAreRefused) {
  EXPECT_NE(refusal(with_charsmap("BAA=")).find("shorter than its header"), std::string::npos);
  EXPECT_NE(refusal(with_charsmap("////fwAAAAA=")).find("shorter than its header says"), std::string::npos);
  EXPECT_NE(refusal(with_charsmap("CAAAAAAAAAA=")).find("shorter than its header says"), std::string::npos);
  EXPECT_NE(refusal(with_charsmap("AAAAAOKC")).find("no UTF-8"), std::string::npos);
  EXPECT_NE(refusal(with_charsmap("AAA*")).find("no base64"), std::string::npos);
  EXPECT_EQ(refusal(with_charsmap("AAAAAA==")), "");
}

TEST(JsonTokenizer, AcceptsGapsAndIgnoresTruncationAndPadding) {
  const auto tokenizer = Tokenizer::from_json(
      R"({"truncation":{"max_length":1},"padding":{"strategy":{"Fixed":9}},"added_tokens":[{"id":7,"content":"x"},)"
      R"({"id":8,"content":""}],"model":{"vocab":{"a":0,"b":5},"merges":[],"byte_fallback":true}})",
      Json());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;

  EXPECT_EQ((*tokenizer)->size(), 9);
  EXPECT_EQ((*tokenizer)->token_text(3), "");
  EXPECT_EQ(encode(**tokenizer, "abxab?", {}), (std::vector<int32_t>{0, 5, 7, 0, 5}));
  EXPECT_EQ((*tokenizer)->decode(std::vector<int32_t>{0, 3, 5}, false), "a b");  // no decoder: joined by spaces
}

// S14
TEST(JsonTokenizer, GivesUpOnAnExplosivePattern) {
  const auto tokenizer = Tokenizer::from_json(
      small_file(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?:a+)+(?:b|c)$"},"behavior":"Isolated"},)"),
      Json());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;

  EXPECT_FALSE((*tokenizer)->encode(std::string(5000, 'a') + "bx", {}).ok());
  EXPECT_TRUE((*tokenizer)->encode("aab", {}).ok());
}

}  // namespace
}  // namespace quern
