// Completions, tokenize and detokenize over the loopback interface, answered by
// a scripted service.
#include "server/server_fixture.h"

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class CompletionTest : public ServerTest {};

TEST_F(CompletionTest, AnswersAsOpenAiDoes) {
  start();

  const Json body = json(complete());

  EXPECT_THAT(body.string("id").value(), StartsWith("cmpl-"));
  EXPECT_EQ(body.string("object"), "text_completion");
  EXPECT_EQ(body.string("model"), "org/model");
  EXPECT_EQ(choice(body).string("text"), "hello");
  EXPECT_EQ(usage(body, "prompt_tokens"), 3);
  EXPECT_EQ(service_->seen()[0].max_tokens, 16);
}

TEST_F(CompletionTest, TakesEveryFormOfPrompt) {
  start();
  const auto choices = [&](const std::string& prompt, const std::string& more = "") {
    return json(post("/v1/completions", R"({"prompt":)" + prompt + more + "}")).find("choices")->items().size();
  };

  EXPECT_EQ(choices(R"("hi")"), 1U);
  EXPECT_EQ(choices(R"(["a","b","c"])", R"(,"n":2)"), 6U);
  EXPECT_EQ(choices("[256,104,105]"), 1U);
  EXPECT_EQ(choices("[[256,104],[105]]"), 2U);
  EXPECT_EQ(service_->seen()[0].prompt, service_->seen()[7].prompt);
}

TEST_F(CompletionTest, S20ChecksTokenIds) {
  start();

  for (const std::string prompt :
       {"[259]", "[-1]", "[1.5]", "[[1],[300]]", "[]", "[[]]", "{}", "5", R"([1,"a"])", R"(["a",1])"}) {
    EXPECT_EQ(post("/v1/completions", R"({"prompt":)" + prompt + "}").status, 400) << prompt;
  }
  expect_error(complete(R"("stop_token_ids":[259])"), 400, "stop_token_ids", "invalid_value");
}

TEST_F(CompletionTest, S21EmptyPromptIsTheBeginningOfText) {
  start();

  const Json body = json(post("/v1/completions", R"({"prompt":""})"));

  EXPECT_EQ(usage(body, "prompt_tokens"), 1);
  expect_error(post("/v1/completions", R"({"prompt":"","add_special_tokens":false})"), 400, "prompt", "invalid_value");
  expect_error(post("/v1/completions", "{}"), 400, "prompt", "missing_required_parameter");
}

TEST_F(CompletionTest, EchoesThePrompt) {
  start();
  const std::string prompt = R"({"prompt":"  h\u00e9 \u65e5","echo":true)";

  EXPECT_EQ(content(json(post("/v1/completions", prompt + "}"))), "  h\xC3\xA9 \xE6\x97\xA5hello");
  EXPECT_EQ(stream("/v1/completions", prompt + R"(,"stream":true})").text(), "  h\xC3\xA9 \xE6\x97\xA5hello");
  EXPECT_EQ(content(json(post("/v1/completions", prompt + R"(,"max_tokens":0})"))), "  h\xC3\xA9 \xE6\x97\xA5");
  EXPECT_EQ(stream("/v1/completions", prompt + R"(,"max_tokens":0,"stream":true})").text(), "  h\xC3\xA9 \xE6\x97\xA5");
  expect_error(complete(R"("max_tokens":0)"), 400, "max_tokens", "integer_below_min_value");
}

TEST_F(CompletionTest, AStopStringInThePromptDoesNotStop) {
  script("say hi");
  start();

  EXPECT_EQ(content(json(complete(R"("stop":"hi","echo":true)"))), "hisay ");
}

TEST_F(CompletionTest, GivesLegacyLogprobs) {
  script(
      "ab\xC3\xA9"
      "c");
  start();

  const Json body = json(complete(R"("logprobs":1)"));
  const StreamedAnswer streamed = stream_completion(R"("logprobs":1)");

  const Json& logprobs = *choice(body).find("logprobs");
  EXPECT_EQ(logprobs.find("token_logprobs")->dump(), "[-0.5,-0.5,-0.5,-0.5,-0.5]");
  EXPECT_EQ(logprobs.find("text_offset")->dump(), "[0,1,2,2,3]");
  EXPECT_EQ(logprobs.find("top_logprobs")->items()[0].dump(), R"({"a":-0.5,"z":-1.5})");
  std::string offsets;
  for (const Json& chunk : streamed.chunks) {
    if (const Json* part = choice(chunk).present("logprobs")) {
      for (const Json& offset : part->find("text_offset")->items()) offsets += offset.dump();
    }
  }
  EXPECT_EQ(offsets, "01223");
}

TEST_F(CompletionTest, EchoesLogprobsOfThePrompt) {
  start();
  const std::string fields = R"("prompt":"h\u00e9","echo":true,"logprobs":1)";

  const Json body = json(post("/v1/completions", "{" + fields + R"(,"max_tokens":1})"));
  const StreamedAnswer streamed = stream("/v1/completions", "{" + fields + R"(,"max_tokens":1,"stream":true})");
  const Json alone = json(post("/v1/completions", "{" + fields + R"(,"max_tokens":0})"));

  const Json& logprobs = *choice(body).find("logprobs");
  EXPECT_EQ(logprobs.find("tokens")->items().size(), 5U);
  EXPECT_EQ(logprobs.find("token_logprobs")->dump(), "[null,-0.25,-0.25,-0.25,-0.5]");
  EXPECT_EQ(logprobs.find("top_logprobs")->items()[0].dump(), "null");
  EXPECT_EQ(logprobs.find("text_offset")->dump(), "[0,0,1,1,2]");
  EXPECT_EQ(choice(streamed.chunks[0]).find("logprobs")->find("token_logprobs")->dump(), "[null,-0.25,-0.25,-0.25]");
  EXPECT_EQ(choice(streamed.chunks[1]).find("logprobs")->find("text_offset")->dump(), "[2]");
  EXPECT_EQ(choice(alone).find("logprobs")->find("token_logprobs")->dump(), "[null,-0.25,-0.25,-0.25]");
  EXPECT_EQ(usage(alone, "completion_tokens"), 0);
}

TEST_F(CompletionTest, TellsLogprobsOfPrompts) {
  start();

  const Json body = json(post("/v1/completions", R"({"prompt":["ab","c"],"prompt_logprobs":1,"n":2})"));
  const Json chatted = json(chat(R"("prompt_logprobs":0)"));

  for (const Json& each : body.find("choices")->items()) {
    const Json& told = *each.find("prompt_logprobs");
    EXPECT_EQ(told.items().size(), each.integer("index").value() < 2 ? 3U : 2U);
    EXPECT_TRUE(told.items()[0].is_null());
    EXPECT_TRUE(each.find("logprobs")->is_null());
  }
  EXPECT_EQ(choice(body).find("prompt_logprobs")->items()[1].dump(),
            R"({"97":{"logprob":-0.25,"rank":1,"decoded_token":"a"}})");
  EXPECT_EQ(static_cast<int64_t>(chatted.find("prompt_logprobs")->items().size()), usage(chatted, "prompt_tokens"));
  EXPECT_EQ(service_->seen()[1].sampling.prompt_logprobs,
            -1);  // once for each prompt
}

TEST_F(CompletionTest, GivesTheMostProbableOfSeveral) {
  start();

  const Json body = json(complete(R"("best_of":3,"n":2)"));

  EXPECT_EQ(body.find("choices")->items().size(), 2U);
  EXPECT_TRUE(choice(body).find("logprobs")->is_null());
  EXPECT_EQ(service_->seen().size(), 3U);
  EXPECT_EQ(service_->seen()[2].sampling.logprobs, 0);
  EXPECT_EQ(usage(body, "completion_tokens"), 3 * 6);
}

/// The tokens for filling in are the last ones.
class FillingTokenizer : public ByteTokenizer {
 public:
  using ByteTokenizer::ByteTokenizer;
  Result<std::vector<int32_t>> encode_pieces(std::span<const TextPiece> pieces, bool add_special) const override {
    std::vector<int32_t> ids;
    if (add_special) ids.push_back(kBos);
    for (const TextPiece& piece : pieces) {
      if (piece.trusted) {
        ids.push_back(*id_of(piece.text));
      } else {
        for (const char c : piece.text) ids.push_back(static_cast<unsigned char>(c));
      }
    }
    return ids;
  }
  std::string_view token_bytes(int32_t id) const override {
    static constexpr std::array<std::string_view, 3> marks = {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"};
    return id > kSpecial && id < size() ? marks[static_cast<size_t>(id - kSpecial - 1)]
                                        : ByteTokenizer::token_bytes(id);
  }
  int size() const override { return kSpecial + 4; }
};

/// Its file says that other tokens are the marks than their spelling does.
class NamingTokenizer final : public FillingTokenizer {
 public:
  std::optional<FillInTokens> fill_in_tokens() const override { return FillInTokens{260, 261, 259}; }
};

TEST_F(CompletionTest, FillsInBetweenTheMarksThatTheFileNames) {
  tokenizer_ = std::make_shared<NamingTokenizer>();
  start();

  complete(R"("suffix":"x")");

  const std::vector<int32_t> prompt = service_->seen()[0].prompt;
  EXPECT_EQ(prompt[1], 260);
  EXPECT_EQ(prompt[prompt.size() - 3], 261);
  EXPECT_EQ(prompt.back(), 259);
}

TEST_F(CompletionTest, FillsInBetweenPromptAndSuffix) {
  tokenizer_ = std::make_shared<FillingTokenizer>();
  start();

  const Json body = json(post("/v1/completions", R"({"prompt":"ab","suffix":"<fim_middle>","echo":true})"));

  std::vector<int32_t> expected{ByteTokenizer::kBos, 259, 'a', 'b', 260};
  for (const char c : std::string("<fim_middle>")) expected.push_back(c);
  expected.push_back(261);
  EXPECT_EQ(service_->seen()[0].prompt, expected);
  EXPECT_EQ(content(body), "abhello");
  expect_error(post("/v1/completions", R"({"prompt":[1],"suffix":"x"})"), 400, "prompt", "invalid_value");
  expect_error(complete(R"("suffix":"x","echo":true,"logprobs":0)"), 400, "suffix", "unsupported_parameter");
  EXPECT_EQ(complete(R"("suffix":"")").status, 200);
}

TEST_F(CompletionTest, RefusesWhatItCannotDo) {
  start();

  expect_error(complete(R"("suffix":"x")"), 400, "suffix", "unsupported_parameter");
  expect_error(complete(R"("best_of":1,"n":2)"), 400, "best_of", "invalid_value");
  expect_error(complete(R"("best_of":2,"stream":true)"), 400, "best_of", "invalid_value");
  EXPECT_EQ(complete(R"("best_of":2,"n":2)").status, 200);
  expect_error(complete(R"("prompt_logprobs":1,"stream":true)"), 400, "prompt_logprobs", "invalid_value");
  expect_error(complete(R"("allowed_token_ids":[])"), 400, "allowed_token_ids", "invalid_value");
  expect_error(complete(R"("allowed_token_ids":[259])"), 400, "allowed_token_ids", "invalid_value");
  expect_error(complete(R"("bad_words":[" "])"), 400, "bad_words", "invalid_value");
  expect_error(complete(R"("bad_words":"x")"), 400, "bad_words", "invalid_type");
  expect_error(complete(R"("typical_p":0)"), 400, "typical_p", "decimal_below_min_value");
  expect_error(complete(R"("repeat_last_n":-2)"), 400, "repeat_last_n", "integer_below_min_value");
  expect_error(complete(R"("logprobs":21)"), 400, "logprobs", "integer_above_max_value");
}

TEST_F(CompletionTest, BoundsWhatIsToldOfWholeVocabularies) {
  options_.max_logprobs = -1;
  options_.vocab_size = 200'000;
  start();

  EXPECT_EQ(complete(R"("logprobs":-1,"max_tokens":50)").status, 200);
  EXPECT_EQ(service_->seen().back().sampling.logprobs, 200'000);
  EXPECT_EQ(complete(R"("prompt_logprobs":-1,"max_tokens":1)").status, 200);
  EXPECT_EQ(complete(R"("logprobs":20,"max_tokens":100,"n":100)").status, 200);
  expect_error(complete(R"("logprobs":-1,"max_tokens":100)"), 400, "logprobs", "invalid_value");
  expect_error(complete(R"("logprobs":100000,"max_tokens":100,"n":2)"), 400, "logprobs", "invalid_value");
}

TEST_F(CompletionTest, PassesWantedLogprobsToTheEngine) {
  options_.tell_logits = true;
  start();

  complete(R"("logprobs":2,"logprob_token_ids":[7,9])");

  const SamplingParams sampling = service_->seen()[0].sampling;
  EXPECT_EQ(sampling.logprobs, 2);
  EXPECT_THAT(sampling.logprob_ids, ElementsAre(7, 9));
  EXPECT_TRUE(sampling.tell_logits);
  expect_error(complete(R"("logprob_token_ids":[7])"), 400, "logprob_token_ids", "invalid_value");
  expect_error(complete(R"("logprobs":-1)"), 400, "logprobs", "integer_below_min_value");
  expect_error(complete(R"("best_of":2)"), 400, "best_of", "unsupported_parameter");
}

TEST_F(CompletionTest, S19BoundsPromptsTimesN) {
  options_.max_choices = 10;
  start();

  EXPECT_EQ(post("/v1/completions", R"({"prompt":["a","b"],"n":5})").status, 200);
  expect_error(post("/v1/completions", R"({"prompt":["a","b","c"],"n":4})"), 400, "prompt", "invalid_value");
}

TEST_F(CompletionTest, PassesSamplingToTheEngine) {
  options_.defaults.sampling.temperature = 0.5F;
  options_.defaults.sampling.top_k = 7;
  start();

  complete(
      R"("top_p":0.25,"min_p":0.1,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"logit_bias":{"5":2},
      "typical_p":0.5,"repeat_last_n":64,"bad_words":["xy"],"allowed_token_ids":[3,40],"min_tokens":2,"ignore_eos":true,"priority":-3,"stop_token_ids":[7])");

  const Request request = service_->seen()[0];
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.top_p, 0.25F);
  EXPECT_EQ(request.sampling.min_p, 0.1F);
  EXPECT_EQ(request.sampling.typical_p, 0.5F);
  EXPECT_EQ(request.sampling.repeat_last_n, 64);
  EXPECT_THAT(request.sampling.bad_words, ElementsAre(ElementsAre('x', 'y'), ElementsAre(' ', 'x', 'y')));
  EXPECT_EQ(request.sampling.allowed->at(0), 8U);
  EXPECT_EQ(request.sampling.allowed->at(1), 256U);
  EXPECT_EQ(request.sampling.presence_penalty, 1.0F);
  EXPECT_EQ(request.sampling.frequency_penalty, -1.0F);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5F);
  EXPECT_THAT(request.sampling.logit_bias, ElementsAre(std::pair(5, 2.0F)));
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_TRUE(request.end_tokens.empty());
  EXPECT_EQ(request.priority, -3);
  EXPECT_THAT(request.stop_tokens, ElementsAre(7));
}

TEST_F(CompletionTest, TokenizesAndBack) {
  start();

  const Json tokens = json(post("/tokenize", R"({"prompt":"h\u00e9","return_token_strs":true})"));
  const Json chat_tokens = json(post("/tokenize", R"({"messages":[{"role":"user","content":"hi"}]})"));
  const Json text = json(post("/detokenize", R"({"tokens":[104,195,169]})"));

  EXPECT_EQ(tokens.integer("count"), 4);
  EXPECT_EQ(tokens.integer("max_model_len"), 200);
  EXPECT_EQ(tokens.find("tokens")->dump(), "[256,104,195,169]");
  EXPECT_EQ(chat_tokens.integer("count"), usage(json(chat()), "prompt_tokens"));
  EXPECT_EQ(text.string("prompt"), "h\xC3\xA9");
  expect_error(post("/detokenize", R"({"tokens":[259]})"), 400, "tokens", "invalid_value");
  expect_error(post("/tokenize", "{}"), 400, "prompt", "missing_required_parameter");
}

}  // namespace
}  // namespace quern
