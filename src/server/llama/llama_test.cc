// llama-server's routes over the loopback interface, answered by a scripted service.
#include "server/llama/requests.h"
#include "server/llama/wire.h"
#include "server/server_fixture.h"

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LlamaTest : public ServerTest {
 protected:
  Json ask(const std::string& body, const std::string& path = "/completion") {
    const HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json(response);
  }
  /// The error object, after a check of its form.
  Json refusal(const std::string& body, const std::string& path = "/completion", int status = 400) {
    const HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    const Json error = *json(response).find("error");
    EXPECT_EQ(error.integer("code"), status);
    EXPECT_TRUE(error.string("message").has_value());
    return error;
  }
  std::vector<Json> events(const std::string& body) {
    const StreamedAnswer answer = stream("/completion", body);
    EXPECT_FALSE(answer.done);  // this protocol has no [DONE]
    return answer.chunks;
  }
};

std::vector<std::string> names(const Json& object) {
  std::vector<std::string> out;
  for (const auto& [name, value] : object.members()) out.push_back(name);
  return out;
}

TEST_F(LlamaTest, CompletesInOneObject) {
  start();

  const Json answer = ask(R"({"prompt":"hi"})");

  EXPECT_THAT(names(answer), ElementsAre("index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted",
                                         "tokens_evaluated", "generation_settings", "prompt", "has_new_line",
                                         "truncated", "stop_type", "stopping_word", "tokens_cached", "timings"));
  EXPECT_EQ(answer.string("content"), "hello");
  EXPECT_EQ(answer.find("tokens")->dump(), "[]");
  EXPECT_EQ(answer.string("model"), "org/model");
  EXPECT_EQ(answer.integer("tokens_predicted"), 6);
  EXPECT_EQ(answer.integer("tokens_evaluated"), 3);
  EXPECT_EQ(answer.integer("tokens_cached"), 1);
  EXPECT_EQ(answer.string("prompt"), "<s>hi");
  EXPECT_EQ(answer.string("stop_type"), "eos");
  const Json& timings = *answer.find("timings");
  EXPECT_EQ(timings.integer("cache_n"), 1);
  EXPECT_EQ(timings.integer("prompt_n"), 2);
  EXPECT_EQ(timings.integer("predicted_n"), 6);
  EXPECT_GT(timings.number("predicted_per_second"), 0);
}

TEST_F(LlamaTest, StreamsEventsWithoutAMarkOfTheEnd) {
  start();

  const std::vector<Json> said = events(R"({"prompt":"hi","stream":true})");

  std::string text;
  std::vector<int64_t> tokens;
  for (const Json& event : said) {
    text += event.string("content").value();
    for (const Json& id : event.find("tokens")->items()) tokens.push_back(id.as_integer());
    EXPECT_EQ(event.boolean("stop"), &event == &said.back());
  }
  EXPECT_EQ(text, "hello");
  EXPECT_THAT(tokens, ElementsAre('h', 'e', 'l', 'l', 'o'));
  EXPECT_EQ(said.back().string("stop_type"), "eos");
  EXPECT_EQ(said.back().integer("tokens_predicted"), 6);
}

TEST_F(LlamaTest, TakesEveryFormOfPrompt) {
  start();
  const auto prompt = [&](const std::string& value) {
    ask(R"({"n_predict":1,"prompt":)" + value + "}");
    return service_->seen().back().prompt;
  };

  EXPECT_THAT(prompt(R"("hi")"), ElementsAre(256, 'h', 'i'));
  EXPECT_THAT(prompt("[104,105]"), ElementsAre(104, 105));
  EXPECT_THAT(prompt(R"([104,"i",33])"), ElementsAre(104, 'i', 33));
  EXPECT_THAT(prompt(R"(["h",105])"), ElementsAre(256, 'h', 105));
  EXPECT_THAT(prompt(R"({"prompt_string":"x"})"), ElementsAre(256, 'x'));
  const Json several = ask(R"({"prompt":["a",[98],{"prompt_string":"c"},[100,"e"]],"n_predict":1})");
  ASSERT_EQ(several.items().size(), 4U);
  EXPECT_EQ(several.items()[3].integer("index"), 3);
  EXPECT_EQ(several.items()[3].integer("tokens_evaluated"), 2);
  for (const char* bad : {"5", "[]", "[[]]", "[-1]", "[300]", R"({"prompt_string":5})", "[true]", "null",
                          R"({"prompt_string":"a","multimodal_data":["aGk="]})"}) {
    refusal(R"({"prompt":)" + std::string(bad) + "}");
  }
}

TEST_F(LlamaTest, SaysWhyItStopped) {
  script("one\ntwo");
  start();

  const Json limit = ask(R"({"prompt":"x","n_predict":2,"return_tokens":true})");
  const Json word = ask(R"({"prompt":"x","stop":["two"]})");
  const Json full = ask(R"({"prompt":")" + std::string(196, 'a') + "\"}");

  EXPECT_EQ(limit.string("stop_type"), "limit");
  EXPECT_EQ(limit.find("tokens")->dump(), "[111,110]");
  EXPECT_EQ(limit.boolean("truncated"), false);
  EXPECT_EQ(word.string("stop_type"), "word");
  EXPECT_EQ(word.string("stopping_word"), "two");
  EXPECT_EQ(word.boolean("has_new_line"), true);
  EXPECT_EQ(full.boolean("truncated"), true);
  EXPECT_EQ(ask(R"({"prompt":"x","n_predict":0})").string("content"), "");
}

TEST_F(LlamaTest, MapsItsSamplers) {
  start();

  const Json answer = ask(R"({"prompt":"x","temperature":0.5,"top_k":7,"top_p":0.25,"min_p":0.125,"typical_p":0.5,
      "repeat_penalty":1.5,"repeat_last_n":9,"presence_penalty":0.5,"frequency_penalty":0.25,"seed":42,
      "logit_bias":[[104,1.5],["i",false]],"xtc_probability":0,"dry_multiplier":0.0,"mirostat":0,"lora":[],
      "id_slot":-1,"n_keep":0,"grammar":"","stop":["q"],"ignore_eos":false})");

  const SamplingParams sampling = service_->seen().at(0).sampling;
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(sampling.repeat_last_n, 9);
  EXPECT_EQ(sampling.seed, 42U);
  EXPECT_THAT(sampling.logit_bias, ElementsAre(std::pair(104, 1.5F), std::pair(105, -100.0F)));
  const Json& settings = *answer.find("generation_settings");
  EXPECT_EQ(settings.number("top_p"), 0.25);
  EXPECT_EQ(settings.number("min_p"), 0.125);
  EXPECT_EQ(settings.integer("n_predict"), -1);
  EXPECT_EQ(settings.find("stop")->dump(), R"(["q"])");
}

TEST_F(LlamaTest, SwitchesSamplersOff) {
  start();

  ask(R"({"prompt":"x","samplers":["top_k","temperature"],"top_k":3,"top_p":0.5,"min_p":0.5,"repeat_penalty":2})");
  ask(R"({"prompt":"x","samplers":"p","top_p":0.5})");

  const SamplingParams first = service_->seen().at(0).sampling;
  EXPECT_EQ(first.top_k, 3);
  EXPECT_EQ(first.temperature, 0.8F);
  EXPECT_EQ(first.top_p, 1.0F);
  EXPECT_EQ(first.min_p, 0.0F);
  EXPECT_EQ(first.repetition_penalty, 1.0F);
  const SamplingParams second = service_->seen().at(1).sampling;
  EXPECT_EQ(second.top_p, 0.5F);
  EXPECT_EQ(second.top_k, 0);
  EXPECT_EQ(second.temperature, 1.0F);
}

TEST_F(LlamaTest, TellsProbabilities) {
  script("a");
  start();

  const Json answer = ask(R"({"prompt":"x","n_probs":1})");

  EXPECT_EQ(
      answer.find("completion_probabilities")->items()[0].dump(),
      R"({"id":97,"token":"a","bytes":[97],"logprob":-0.5,"top_logprobs":[{"id":97,"token":"a","bytes":[97],"logprob":-0.5}]})");
}

TEST_F(LlamaTest, GivesChosenFieldsOnly) {
  start();

  const Json answer = ask(R"({"prompt":"x","n_predict":2,"response_fields":["content","generation_settings/n_predict",
      "none/x"]})");

  EXPECT_EQ(answer.dump(), R"({"content":"he","generation_settings/n_predict":2})");
}

TEST_F(LlamaTest, DoesNotReuseWhatItIsToldNotTo) {
  start();

  for (const char* cache : {"false", "false", "true", "true"})
    ask(R"({"prompt":"x","cache_prompt":)" + std::string(cache) + "}");

  const std::vector<Request> seen = service_->seen();
  EXPECT_NE(seen[0].cache_salt, seen[1].cache_salt);
  EXPECT_EQ(seen[2].cache_salt, 0U);
  EXPECT_EQ(seen[3].cache_salt, 0U);
}

TEST_F(LlamaTest, RefusesInItsOwnWords) {
  start();

  EXPECT_EQ(refusal("{}").string("type"), "invalid_request_error");
  EXPECT_THAT(refusal(R"({"prompt":"x","mirostat":2})").string("message").value(), HasSubstr("mirostat"));
  EXPECT_THAT(refusal(R"({"prompt":"x","xtc_probability":0.5})").string("message").value(), HasSubstr("xtc"));
  refusal(R"({"prompt":"x","logit_bias":[[1]]})");
  refusal(R"({"prompt":"x","logit_bias":[["a",true]]})");
  refusal(R"({"prompt":"x","samplers":5})");
  EXPECT_EQ(refusal(R"({"prompt":"x","model":"none"})", "/completion", 404).string("type"), "not_found_error");
  const Json full = refusal(R"({"prompt":")" + std::string(250, 'a') + "\"}");
  EXPECT_EQ(full.string("type"), "exceed_context_size_error");
}

TEST_F(LlamaTest, PassesOverWhatOnlySavesTime) {
  start();

  const HttpResponse response = post("/completion", R"({"prompt":"x","t_max_predict_ms":500,"n_indent":0})");

  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(header(response, "x-unknown-fields"), "t_max_predict_ms");
}

TEST_F(LlamaTest, EndsABrokenStreamWithAnError) {
  script("ab");
  start();
  service_->finish_with(FinishReason::error, "lost");

  EXPECT_EQ(events(R"({"prompt":"hi","stream":true})").back().find("error")->string("type"), "server_error");
}

TEST_F(LlamaTest, SpellsTokensItsOwnWay) {
  start();

  EXPECT_EQ(post("/tokenize", R"({"content":"hi"})").body, R"({"tokens":[104,105]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"h","add_special":true})").body, R"({"tokens":[256,104]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"\u00e9a","with_pieces":true})").body,
            R"({"tokens":[{"id":195,"piece":[195]},{"id":169,"piece":[169]},{"id":97,"piece":"a"}]})");
  EXPECT_EQ(json(post("/detokenize", R"({"tokens":[104,105]})")).string("content"), "hi");
  EXPECT_EQ(json(post("/tokenize", R"({"prompt":"hi"})")).integer("count"), 3);
}

TEST_F(LlamaTest, AppliesTheTemplate) {
  start();

  EXPECT_EQ(post("/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})").body,
            R"({"prompt":"<s>[user]hi[assistant]"})");
  EXPECT_EQ(refusal(R"({"messages":[]})", "/apply-template").string("type"), "invalid_request_error");
}

TEST_F(LlamaTest, TellsItsProperties) {
  options_.most_sequences = 2;
  start();

  const Json props = json(get("/props"));

  EXPECT_EQ(props.integer("total_slots"), 2);
  EXPECT_EQ(props.string("chat_template"), template_);
  EXPECT_EQ(props.find("default_generation_settings")->integer("n_ctx"), 200);
  EXPECT_EQ(props.find("default_generation_settings")->find("params")->integer("top_k"), 40);
  EXPECT_EQ(json(get("/slots")).items().size(), 2U);
  EXPECT_EQ(get("/slots?fail_on_no_slot=1").status, 200);
  EXPECT_EQ(get("/v1/health").body, R"({"status":"ok"})");
  EXPECT_EQ(get("/lora-adapters").body, "[]");
}

TEST_F(LlamaTest, HasNoSlotWhenAllAreBusy) {
  start();
  service_->hold();
  HttpClient other("127.0.0.1", server_->port());
  std::thread busy([&] {
    const auto answer =
        other.send({"POST", "/completion", {{"Content-Type", "application/json"}}, R"({"prompt":"x"})", ""}, kPatience);
    EXPECT_EQ(answer.value().status, 200);
  });
  while (service_->stats().running == 0) std::this_thread::yield();

  EXPECT_EQ(get("/slots?fail_on_no_slot=1").status, 503);
  EXPECT_EQ(json(get("/slots")).items()[0].boolean("is_processing"), true);

  service_->step(10);
  busy.join();
}

TEST_F(LlamaTest, NeedsTokensForFillingIn) {
  start();

  EXPECT_THAT(refusal(R"({"input_prefix":"a","input_suffix":"b"})", "/infill").string("message").value(),
              HasSubstr("Infill"));
}

TEST(LlamaEmbedding, HasAListForEachText) {
  TextModel model;
  model.tokenizer = std::make_shared<ByteTokenizer>();
  model.options.model_names = {"m"};
  model.options.max_model_len = 10;
  model.options.output = OutputKind::pooled;
  model.options.pooling.dim = 2;

  const PoolingCall call = parse_llama_embedding(R"({"content":["a","b"]})", model).value();

  EXPECT_TRUE(call.normalize);
  EXPECT_EQ(call.form(call, {{1, 0.5F}, {0, 1}}, 0),
            R"([{"index":0,"embedding":[[1,0.5]]},{"index":1,"embedding":[[0,1]]}])");
  EXPECT_FALSE(parse_llama_embedding(R"({"content":"a","embd_normalize":-1})", model).value().normalize);
  EXPECT_FALSE(parse_llama_embedding(R"({"content":"a","embd_normalize":1})", model).ok());
  EXPECT_FALSE(parse_llama_embedding("{}", model).ok());
}

}  // namespace
}  // namespace quern
