#include "server/openai/pooling.h"

#include <gtest/gtest.h>

#include "server/scripted_service.h"

namespace quern {
namespace {

/// Joins two texts with the end token; the second one has type 1.
class PairTokenizer final : public ByteTokenizer {
 public:
  Result<EncodedPair> encode_pair(std::string_view first, std::string_view second) const override {
    EncodedPair pair;
    pair.ids = encode(first, {}).value();
    pair.ids.push_back(kEos);
    pair.types.assign(pair.ids.size(), 0);
    for (const char c : second) pair.ids.push_back(static_cast<unsigned char>(c));
    pair.types.resize(pair.ids.size(), 1);
    return pair;
  }
};

TextModel model_for(OutputKind output) {
  TextModel model;
  model.tokenizer = std::make_shared<PairTokenizer>();
  model.options.model_names = {"m"};
  model.options.max_model_len = 12;
  model.options.output = output;
  model.options.pooling.dim = 8;
  return model;
}

std::vector<int32_t> bytes(std::string_view text) {
  std::vector<int32_t> ids{ByteTokenizer::kBos};
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

TEST(Embeddings, ReadsEveryFormOfInput) {
  const TextModel model = model_for(OutputKind::pooled);
  const auto inputs = [&](const std::string& input) {
    return parse_embeddings(R"({"input":)" + input + "}", model).value().inputs;
  };
  EXPECT_EQ(inputs(R"("hi")")[0].tokens, bytes("hi"));
  EXPECT_EQ(inputs(R"(["hi","a"])")[1].tokens, bytes("a"));
  EXPECT_EQ(inputs("[5,6]")[0].tokens, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(inputs("[[5],[6,7]]")[1].tokens, (std::vector<int32_t>{6, 7}));
}

TEST(Embeddings, CutsTheTextAndKeepsTheSpecialTokens) {
  const TextModel model = model_for(OutputKind::pooled);
  auto parsed = parse_embeddings(R"({"input":"abcdefghijklmnop","truncate_prompt_tokens":4})", model);
  EXPECT_EQ(parsed.value().inputs[0].tokens, bytes("abc"));
  EXPECT_EQ(parsed.value().prompt_tokens, 4);
}

TEST(Embeddings, RefusesWhatIsWrong) {
  TextModel model = model_for(OutputKind::pooled);
  const auto refusal = [&](const char* body) {
    auto parsed = parse_embeddings(body, model);
    return parsed.ok() ? std::string("accepted") : parsed.error().param + ": " + parsed.error().code;
  };
  EXPECT_EQ(refusal(R"({})"), "input: missing_required_parameter");
  EXPECT_EQ(refusal(R"({"input":"abcdefghijklmnop"})"), "input: context_length_exceeded");
  EXPECT_EQ(refusal(R"({"input":"a","dimensions":4})"), "dimensions: unsupported_parameter");
  EXPECT_EQ(refusal(R"({"input":"a","dimensions":8})"), "accepted");
  model.options.pooling.dimensions = {2, 4};
  EXPECT_EQ(refusal(R"({"input":"a","dimensions":3})"), "dimensions: invalid_value");
  EXPECT_EQ(refusal(R"({"input":"a","dimensions":4})"), "accepted");
  EXPECT_EQ(refusal(R"({"input":"a","encoding_format":"hex"})"), "encoding_format: invalid_value");
  EXPECT_EQ(refusal(R"({"input":"a","messages":[{}]})"), "messages: unsupported_parameter");
  EXPECT_EQ(refusal(R"({"input":"a","model":"other"})"), "model: model_not_found");
}

TEST(Embeddings, Base64IsThatOfLittleEndianFloats) {
  PoolingCall call;
  call.base64 = true;
  call.model = "m";
  call.inputs.resize(3);
  const std::string answer = pooling_answer(call, {{1.0F}, {1.0F, -2.5F}, {0.1F, -2.5F, 1e-9F}}, {}, "x", 0);
  for (const char* text : {"\"AACAPw==\"", "\"AACAPwAAIMA=\"", "\"zczMPQAAIMBfcIkw\""}) {
    EXPECT_NE(answer.find(text), std::string::npos) << text << " is not in " << answer;
  }
}

TEST(Scores, APairKnowsWhereItsSecondTextBegins) {
  const TextModel model = model_for(OutputKind::scores);
  auto parsed = parse_score(R"({"text_1":"ab","text_2":["c","d"]})", model);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed.value().inputs.size(), 2U);
  EXPECT_EQ(parsed.value().inputs[1].second_text, 4);
  EXPECT_EQ(parsed.value().prompt_tokens, 10);
}

TEST(Scores, AreBetweenZeroAndOneUnlessRawOnesAreWanted) {
  PoolingCall call;
  call.kind = PoolingCall::Kind::score;
  call.inputs.resize(2);
  const std::vector<std::vector<float>> logits{{0.0F}, {2.0F}};
  const auto scores = [&] {
    const Json answer = Json::parse(pooling_answer(call, logits, {}, "x", 1)).value();
    return std::pair(*answer.find("data")->items()[0].number("score"),
                     *answer.find("data")->items()[1].number("score"));
  };
  EXPECT_EQ(scores().first, 0.5);
  EXPECT_NEAR(scores().second, 0.8807970779778823, 1e-12);
  call.raw_scores = true;
  EXPECT_EQ(scores(), std::pair(0.0, 2.0));
}

TEST(Ranking, ComesBestFirstAndOnlyAsManyAsAsked) {
  PoolingCall call;
  call.kind = PoolingCall::Kind::rerank;
  call.inputs.resize(3);
  call.documents = {"a", "b", "c"};
  call.top_n = 2;
  const Json answer = Json::parse(pooling_answer(call, {{1.0F}, {3.0F}, {1.0F}}, {}, "x", 1)).value();
  const auto& results = answer.find("results")->items();
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].integer("index"), 1);
  EXPECT_EQ(results[1].integer("index"), 0);  // of equals the first
  EXPECT_EQ(results[0].find("document")->string("text"), "b");
}

TEST(WrongTask, SaysWhatTheModelIsFor) {
  const auto refused = parse_embeddings(R"({"input":"a"})", model_for(OutputKind::tokens));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().status, 400);
  EXPECT_NE(refused.error().message.find("makes text"), std::string::npos);
  EXPECT_EQ(parse_rerank(R"({"query":"a","documents":["b"]})", model_for(OutputKind::tokens)).error().code,
            "unsupported_model");
}

}  // namespace
}  // namespace quern
