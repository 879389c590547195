// Ollama's API over the loopback interface, answered by a scripted service and a scripted library.
#include <algorithm>

#include "server/ollama/embeddings.h"
#include "server/ollama/names.h"
#include "server/ollama/options.h"
#include "server/server_fixture.h"

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kToolTemplate =
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | "
    "tojson }}</tool_call>{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]"
    "{% if enable_thinking is false %}(quick){% endif %}{% endif %}";

/// Two models; pulls come in two steps.
class FakeLibrary final : public ModelLibrary {
 public:
  Result<std::vector<StoredModel>> list() override { return models; }
  Result<StoredModel> find(std::string_view name) override {
    for (const StoredModel& model : models) {
      if (model.name == name) return model;
    }
    return Error{"there is no such model"};
  }
  Result<ModelDetails> show(std::string_view name) override {
    ASSIGN_OR_RETURN(StoredModel model, find(name));
    return ModelDetails{model, "mit", "", {"completion"}, Json::parse(R"({"num_hidden_layers":2})").value()};
  }
  Result<StoredModel> pull(std::string_view name, const OnProgress& on_progress) override {
    if (name != "org/new") return Error{"the hub has no such model"};
    for (const int64_t completed : {int64_t{5}, int64_t{10}}) {
      if (!on_progress({"model.gguf", "sha256:abc", 10, completed, 10, completed})) return Error{"stopped"};
    }
    StoredModel model;
    model.name = std::string(name);
    models.push_back(model);
    return model;
  }
  Status copy(std::string_view source, std::string_view destination) override {
    ASSIGN_OR_RETURN(StoredModel model, find(source));
    model.name = std::string(destination);
    models.push_back(model);
    return {};
  }
  Status remove(std::string_view name) override {
    std::erase_if(models, [&](const StoredModel& model) { return model.name == name; });
    return {};
  }

  std::vector<StoredModel> models;
};

class OllamaTest : public ServerTest {
 protected:
  void use_tools() {
    template_ = kToolTemplate;
    options_.max_model_len = 2000;
    auto format = ReplyFormat::make("hermes", "deepseek_r1", template_, *tokenizer_);
    ASSERT_TRUE(format.ok());
    options_.reply_format = std::move(format).value();
  }
  void use_library() {
    library_ = std::make_shared<FakeLibrary>();
    StoredModel stored;
    stored.name = "org/stored:Q4_K_M";
    stored.digest = "sha256:" + std::string(64, 'a');
    stored.family = "llama";
    stored.bytes = 77;
    library_->models = {stored};
    options_.library = library_;
  }

  Json ask(const std::string& path, const std::string& body, int status = 200) {
    const HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    return json(response);
  }
  std::string refusal(const std::string& path, const std::string& body, int status = 400) {
    const Json answer = ask(path, body, status);
    EXPECT_EQ(answer.members().size(), 1U) << answer.dump();
    return answer.string("error").value_or("");
  }
  std::vector<Json> lines(const std::string& path, const std::string& body) {
    const HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(header(response, "content-type"), "application/x-ndjson");
    EXPECT_TRUE(response.body.ends_with('\n'));
    std::vector<Json> out;
    for (size_t begin = 0; begin < response.body.size();) {
      const size_t end = response.body.find('\n', begin);
      out.push_back(Json::parse(response.body.substr(begin, end - begin)).value());
      begin = end + 1;
    }
    return out;
  }

  std::shared_ptr<FakeLibrary> library_;
};

constexpr const char* kHi = R"("model":"alias","messages":[{"role":"user","content":"hi"}])";

std::string body(const std::string& members) { return "{" + members + "}"; }

TEST(OllamaNames, HaveATag) {
  const std::vector<std::string> served = {"org/Model", "b:7b"};

  EXPECT_EQ(tagged("llama3.2"), "llama3.2:latest");
  EXPECT_EQ(tagged("host:1/b"), "host:1/b:latest");
  EXPECT_EQ(tagged("b:7b"), "b:7b");
  EXPECT_EQ(*find_served("org/model:latest", served), "org/Model");
  EXPECT_EQ(find_served("b", served), nullptr);
  EXPECT_EQ(find_served("b:latest", served), nullptr);
}

TEST(OllamaDuration, TakesSecondsAndGoDurations) {
  EXPECT_EQ(ollama_duration(Json(30)), 30);
  EXPECT_EQ(ollama_duration(Json("1h30m")), 5400);
  EXPECT_EQ(ollama_duration(Json("1.5s")), 1.5);
  EXPECT_EQ(ollama_duration(Json("-1m")), -60);
  EXPECT_EQ(ollama_duration(Json("0")), 0);
  for (const char* wrong : {"", "5", "m", "5x", "-", "1e3s"}) EXPECT_FALSE(ollama_duration(Json(wrong))) << wrong;
  EXPECT_FALSE(ollama_duration(Json(true)));
}

TEST_F(OllamaTest, ChatsInOneObject) {
  start();

  const Json answer = ask("/api/chat", body(std::string(kHi) + R"(,"stream":false)"));

  EXPECT_EQ(answer.string("model"), "alias");
  EXPECT_THAT(answer.string("created_at").value(), ::testing::MatchesRegex("2[0-9-]+T[0-9:]+\\.[0-9]+Z"));
  EXPECT_EQ(answer.find("message")->dump(), R"({"role":"assistant","content":"hello"})");
  EXPECT_EQ(answer.boolean("done"), true);
  EXPECT_EQ(answer.string("done_reason"), "stop");
  EXPECT_EQ(answer.integer("prompt_eval_count"), static_cast<int64_t>(seen_prompt().size()));
  EXPECT_EQ(answer.integer("eval_count"), 6);
  for (const char* name : {"total_duration", "prompt_eval_duration", "eval_duration"})
    EXPECT_GT(answer.integer(name).value(), 0) << name;
  EXPECT_GE(answer.integer("total_duration"), answer.integer("eval_duration"));
  EXPECT_FALSE(answer.has("context"));
}

TEST_F(OllamaTest, StreamsLinesUnlessToldNotTo) {
  start();

  const std::vector<Json> said = lines("/api/chat", body(kHi));

  std::string text;
  for (const Json& line : said) {
    EXPECT_EQ(line.string("model"), "alias");
    EXPECT_EQ(line.boolean("done"), &line == &said.back());
    text += line.find("message")->string("content").value();
  }
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(said.back().string("done_reason"), "stop");
  EXPECT_EQ(said.back().integer("eval_count"), 6);
}

TEST_F(OllamaTest, MapsEveryOption) {
  start();

  ask("/api/chat", body(std::string(kHi) + R"(,"stream":false,"options":{"num_predict":3,"temperature":0.5,"top_k":7,
      "top_p":0.25,"min_p":0.125,"typical_p":0.5,"repeat_penalty":1.5,"repeat_last_n":9,"presence_penalty":0.5,
      "frequency_penalty":0.25,"seed":42,"stop":["l",""],"num_ctx":4096,"num_gpu":1,"mirostat":0,"use_mmap":true})"));

  const Request seen = service_->seen().at(0);
  EXPECT_EQ(seen.max_tokens, 3);
  EXPECT_EQ(seen.sampling.temperature, 0.5F);
  EXPECT_EQ(seen.sampling.top_k, 7);
  EXPECT_EQ(seen.sampling.top_p, 0.25F);
  EXPECT_EQ(seen.sampling.min_p, 0.125F);
  EXPECT_EQ(seen.sampling.typical_p, 0.5F);
  EXPECT_EQ(seen.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(seen.sampling.repeat_last_n, 9);
  EXPECT_EQ(seen.sampling.presence_penalty, 0.5F);
  EXPECT_EQ(seen.sampling.frequency_penalty, 0.25F);
  EXPECT_EQ(seen.sampling.seed, 42U);
}

TEST_F(OllamaTest, StopsAtAnyNumberOfStrings) {
  start();

  const Json answer =
      ask("/api/chat", body(std::string(kHi) + R"(,"stream":false,"options":{"stop":["1","2","3","4","5","ll"]})"));

  EXPECT_EQ(answer.find("message")->string("content"), "he");
  EXPECT_EQ(answer.string("done_reason"), "stop");
}

TEST_F(OllamaTest, HasDefaultsOfItsOwnWhereTheModelSaysNothing) {
  start();
  ask("/api/chat", body(std::string(kHi) + R"(,"stream":false,"options":{"top_k":5})"));
  const Request seen = service_->seen().at(0);

  EXPECT_EQ(seen.sampling.temperature, 0.8F);
  EXPECT_EQ(seen.sampling.top_k, 5);
  EXPECT_EQ(seen.sampling.top_p, 0.9F);
  EXPECT_EQ(seen.max_tokens, options_.max_model_len - static_cast<int32_t>(seen.prompt.size()));
}

TEST_F(OllamaTest, KeepsTheDefaultsOfTheModel) {
  options_.defaults.sampling.temperature = 0.25F;
  start();
  ask("/api/generate", body(R"("model":"alias","prompt":"hi","stream":false)"));

  EXPECT_EQ(service_->seen().at(0).sampling.temperature, 0.25F);
  EXPECT_EQ(service_->seen().at(0).sampling.top_k, 0);
}

TEST_F(OllamaTest, CountsTokensDownToNone) {
  start();

  const Json none = ask("/api/chat", body(std::string(kHi) + R"(,"stream":false,"options":{"num_predict":0})"));
  const Json two = ask("/api/chat", body(std::string(kHi) + R"(,"stream":false,"options":{"num_predict":2})"));

  EXPECT_EQ(none.find("message")->string("content"), "");
  EXPECT_EQ(none.string("done_reason"), "length");
  EXPECT_EQ(two.find("message")->string("content"), "he");
  EXPECT_EQ(two.string("done_reason"), "length");
}

TEST_F(OllamaTest, GeneratesWithTheTemplate) {
  start();

  const Json answer =
      ask("/api/generate", body(R"("model":"alias:latest","prompt":"hi","system":"Be kind.","stream":false)"));

  EXPECT_EQ(seen_prompt(), "<s>[system]Be kind.[user]hi[assistant]");
  EXPECT_EQ(answer.string("model"), "alias:latest");
  EXPECT_EQ(answer.string("response"), "hello");
  EXPECT_EQ(answer.find("context")->items().size(),
            static_cast<size_t>(*answer.integer("prompt_eval_count") + *answer.integer("eval_count")));
}

TEST_F(OllamaTest, GoesOnFromAContext) {
  template_ = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]";
  start();
  const Json first = ask("/api/generate", body(R"("model":"alias","prompt":"hi","stream":false)"));
  const std::string context = first.find("context")->dump();

  const auto said = lines("/api/generate", body(R"("model":"alias","prompt":"more","context":)" + context));

  EXPECT_EQ(seen_prompt(1), "[user]hi[assistant]hello</s>[user]more[assistant]");
  EXPECT_EQ(said.back().find("context")->items().size(),
            static_cast<size_t>(*said.back().integer("prompt_eval_count") + *said.back().integer("eval_count")));
}

TEST_F(OllamaTest, GeneratesFromRawText) {
  start();

  const Json answer = ask("/api/generate", body(R"("model":"alias","prompt":"[x]hi","raw":true,"stream":false)"));

  EXPECT_EQ(seen_prompt(), "<s>[x]hi");
  EXPECT_FALSE(answer.has("context"));
  EXPECT_THAT(refusal("/api/generate", body(R"("model":"alias","prompt":"a","raw":true,"system":"b")")),
              HasSubstr("raw mode"));
}

TEST_F(OllamaTest, LoadsWithoutAPrompt) {
  start();

  EXPECT_EQ(ask("/api/generate", body(R"("model":"alias")")).string("done_reason"), "load");
  EXPECT_EQ(ask("/api/generate", body(R"("model":"alias","keep_alive":"5m")")).string("response"), "");
  EXPECT_EQ(ask("/api/chat", body(R"("model":"alias","messages":[])")).find("message")->string("role"), "assistant");
  EXPECT_TRUE(service_->seen().empty());
}

TEST_F(OllamaTest, RefusesWhatItCannotDo) {
  start();

  EXPECT_EQ(refusal("/api/chat", body(R"("model":"other","messages":[])"), 404), "model 'other' not found");
  EXPECT_EQ(refusal("/api/chat", "{}"), "model is required");
  EXPECT_THAT(refusal("/api/chat", "{"), HasSubstr("JSON"));
  EXPECT_THAT(refusal("/api/chat", body(std::string(kHi) + R"(,"keep_alive":"soon")")), HasSubstr("keep_alive"));
  EXPECT_THAT(refusal("/api/chat", body(std::string(kHi) + R"(,"format":"xml")")), HasSubstr("invalid format"));
  EXPECT_THAT(refusal("/api/chat", body(std::string(kHi) + R"(,"think":true)")),
              HasSubstr("does not support thinking"));
  EXPECT_THAT(refusal("/api/chat", body(std::string(kHi) + R"(,"options":{"mirostat":1})")), HasSubstr("mirostat"));
  EXPECT_THAT(refusal("/api/chat", body(std::string(kHi) + R"(,"options":{"temperature":"hot"})")),
              HasSubstr("options.temperature"));
  EXPECT_THAT(refusal("/api/chat", body(R"("model":"alias","messages":[{"role":"user","images":["aGk="]}])")),
              HasSubstr("text only"));
  EXPECT_THAT(refusal("/api/chat", body(R"("model":"alias","messages":[{"content":"x"}])")), HasSubstr("role"));
  EXPECT_THAT(refusal("/api/generate", body(R"("model":"alias","prompt":"a","suffix":"b")")), HasSubstr("insert"));
  EXPECT_THAT(refusal("/api/generate", body(R"("model":"alias","prompt":"a","template":"b")")), HasSubstr("template"));
  EXPECT_THAT(refusal("/api/generate", body(R"("model":"alias","prompt":")" + std::string(300, 'a') + "\"")),
              HasSubstr("maximum context length"));
}

TEST_F(OllamaTest, NamesUnknownOptions) {
  start();

  const HttpResponse long_one =
      post("/api/chat", body(std::string(kHi) + R"(,"stream":false,"options":{"num_predict":900000})"));
  EXPECT_THAT(long_one.body, HasSubstr(" with num_predict."));
  const HttpResponse response = post("/api/chat", body(std::string(kHi) + R"(,"stream":false,"options":{"heat":1})"));

  EXPECT_EQ(header(response, "x-unknown-fields"), "options.heat");
}

TEST_F(OllamaTest, TellsCallsWhole) {
  use_tools();
  script("<think>So.</think>Well.<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>");
  start();
  const std::string asked =
      std::string(kHi) + R"(,"tools":[{"type":"function","function":{"name":"now","parameters":{"type":"object",
      "properties":{"zone":{"type":"string"}}}}}])";

  const Json whole = ask("/api/chat", body(asked + R"(,"stream":false)"));
  const std::vector<Json> said = lines("/api/chat", body(asked));

  const Json& message = *whole.find("message");
  EXPECT_EQ(message.string("content"), "Well.");
  EXPECT_EQ(message.string("thinking"), "So.");
  ASSERT_EQ(message.find("tool_calls")->items().size(), 1U);
  EXPECT_EQ(message.find("tool_calls")->items()[0].find("function")->dump(),
            R"({"index":0,"name":"now","arguments":{"zone":"UTC"}})");
  EXPECT_EQ(whole.string("done_reason"), "stop");
  std::string text;
  std::string thinking;
  Json::Array calls;
  for (const Json& line : said) {
    const Json& part = *line.find("message");
    text += part.string("content").value();
    thinking += part.string("thinking").value_or("");
    if (const Json* some = part.find("tool_calls"))
      calls.insert(calls.end(), some->items().begin(), some->items().end());
  }
  EXPECT_EQ(text, "Well.");
  EXPECT_EQ(thinking, "So.");
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].find("function")->dump(), R"({"index":0,"name":"now","arguments":{"zone":"UTC"}})");
}

TEST_F(OllamaTest, RendersResultsOfTools) {
  use_tools();
  start();

  ask("/api/chat", body(R"("model":"alias","stream":false,"think":false,"messages":[{"role":"user","content":"q"},
      {"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},
      {"role":"tool","tool_name":"f","content":"r"}])"));

  EXPECT_EQ(
      seen_prompt(),
      R"([user]q[assistant]<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>[tool]r[assistant](quick))");
}

TEST_F(OllamaTest, TellsLogprobs) {
  script("a\xC3\xA9");
  start();

  const Json whole =
      ask("/api/generate", body(R"("model":"alias","prompt":"x","raw":true,"stream":false,"logprobs":true,
      "top_logprobs":1)"));
  const std::vector<Json> said =
      lines("/api/generate", body(R"("model":"alias","prompt":"x","raw":true,"logprobs":true)"));

  EXPECT_EQ(whole.find("logprobs")->items().size(), 3U);
  EXPECT_EQ(whole.find("logprobs")->items()[0].dump(),
            R"({"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]}]})");
  size_t told = 0;
  for (const Json& line : said) told += line.has("logprobs") ? line.find("logprobs")->items().size() : 0;
  EXPECT_EQ(told, 3U);
}

TEST_F(OllamaTest, EndsABrokenStreamWithAnError) {
  script("ab");
  start();
  service_->finish_with(FinishReason::error, "lost");

  const std::vector<Json> said = lines("/api/chat", body(kHi));

  EXPECT_TRUE(said.back().string("error").has_value());
  EXPECT_FALSE(said.back().has("done"));
}

TEST_F(OllamaTest, PingsWithLinesThatSayNothing) {
  options_.ping_interval = std::chrono::milliseconds(5);
  script("ab");
  start();
  service_->hold();
  service_->step(1);

  std::string seen;
  const auto take = [&](std::string_view piece) {
    seen += piece;
    if (std::ranges::count(seen, '\n') == 4) service_->step(5);
    return true;
  };
  const auto head =
      client_->send({"POST", "/api/chat", {{"Content-Type", "application/json"}}, body(kHi), ""}, kPatience, take);

  EXPECT_EQ(head.value().status, 200);
  EXPECT_THAT(seen, HasSubstr(R"("message":{"role":"assistant","content":""},"done":false})"));
}

TEST_F(OllamaTest, TellsItsVersion) {
  start();

  EXPECT_EQ(json(get("/api/version")).string("version"), std::string(ollama_version));
  EXPECT_EQ(get("/", {{"User-Agent", "ollama/0.9"}}).body, "Ollama is running");
  EXPECT_THAT(get("/").body, HasSubstr("Quern"));
  EXPECT_EQ(call("HEAD", "/").status, 200);
}

TEST_F(OllamaTest, ListsWhatIsServed) {
  options_.details.model.family = "qwen3";
  start();

  const Json tags = json(get("/api/tags"));
  const Json running = json(get("/api/ps"));

  ASSERT_EQ(tags.find("models")->items().size(), 2U);
  const Json& model = tags.find("models")->items()[1];
  EXPECT_EQ(model.string("name"), "alias:latest");
  EXPECT_EQ(model.string("digest")->size(), 64U);
  EXPECT_EQ(model.find("details")->string("family"), "qwen3");
  ASSERT_EQ(running.find("models")->items().size(), 1U);
  EXPECT_EQ(running.find("models")->items()[0].integer("context_length"), 200);
}

TEST_F(OllamaTest, ShowsAModel) {
  options_.details.model.family = "qwen3";
  options_.details.model.context_length = 40960;
  options_.defaults.sampling.temperature = 0.5F;
  use_tools();
  start();

  const Json shown = ask("/api/show", body(R"("model":"alias")"));

  EXPECT_EQ(shown.string("template"), template_);
  EXPECT_EQ(shown.find("capabilities")->dump(), R"(["completion","tools","thinking"])");
  EXPECT_EQ(shown.find("model_info")->string("general.architecture"), "qwen3");
  EXPECT_EQ(shown.find("model_info")->integer("qwen3.context_length"), 40960);
  EXPECT_THAT(shown.string("parameters").value(), HasSubstr("temperature"));
  EXPECT_EQ(refusal("/api/show", body(R"("name":"none")"), 404), "model 'none' not found");
}

TEST_F(OllamaTest, ListsTheLibraryToo) {
  use_library();
  start();

  const Json tags = json(get("/api/tags"));

  ASSERT_EQ(tags.find("models")->items().size(), 3U);
  const Json& model = tags.find("models")->items()[2];
  EXPECT_EQ(model.string("name"), "org/stored:Q4_K_M");
  EXPECT_EQ(model.string("digest"), std::string(64, 'a'));
  EXPECT_EQ(model.integer("size"), 77);
  const Json shown = ask("/api/show", body(R"("model":"org/stored:Q4_K_M")"));
  EXPECT_EQ(shown.string("license"), "mit");
  EXPECT_EQ(shown.find("model_info")->integer("llama.block_count"), 2);
}

TEST_F(OllamaTest, ChangesNothingUnlessItMay) {
  use_library();
  start();

  EXPECT_THAT(refusal("/api/pull", body(R"("model":"org/new")"), 403), HasSubstr("--allow-model-management"));
  EXPECT_EQ(post("/api/copy", body(R"("source":"a","destination":"b")")).status, 403);
  EXPECT_EQ(call("DELETE", "/api/delete", body(R"("model":"org/stored:Q4_K_M")")).status, 403);
  EXPECT_EQ(library_->models.size(), 1U);
}

TEST_F(OllamaTest, ChangesModelsWhenItMay) {
  use_library();
  options_.allow_model_management = true;
  start();

  const std::vector<Json> pulled = lines("/api/pull", body(R"("model":"org/new")"));
  EXPECT_EQ(pulled.front().string("status"), "pulling manifest");
  EXPECT_EQ(pulled[1].dump(), R"({"status":"pulling abc","digest":"sha256:abc","total":10,"completed":5})");
  EXPECT_EQ(pulled.back().string("status"), "success");
  EXPECT_EQ(ask("/api/pull", body(R"("model":"org/new","stream":false)")).string("status"), "success");
  EXPECT_EQ(lines("/api/pull", body(R"("model":"org/none")")).back().string("error"), "the hub has no such model");
  EXPECT_EQ(refusal("/api/pull", body(R"("name":"org/none","stream":false)")), "the hub has no such model");
  EXPECT_EQ(post("/api/copy", body(R"("source":"org/new","destination":"mine")")).status, 200);
  EXPECT_TRUE(library_->find("mine").ok());
  EXPECT_EQ(refusal("/api/copy", body(R"("source":"none","destination":"b")"), 404), "model 'none' not found");
  EXPECT_EQ(call("DELETE", "/api/delete", body(R"("model":"mine")")).status, 200);
  EXPECT_EQ(call("DELETE", "/api/delete", body(R"("model":"mine")")).status, 404);
}

TEST_F(OllamaTest, SaysThatModelsCannotBeMade) {
  start();

  EXPECT_THAT(refusal("/api/create", body(R"("model":"m","from":"n")")), HasSubstr("quern serve"));
  EXPECT_THAT(refusal("/api/push", body(R"("model":"m")")), HasSubstr("not supported"));
  EXPECT_EQ(call("HEAD", "/api/blobs/sha256:00").status, 404);
}

TEST(OllamaEmbed, ReadsTextsAndWritesVectors) {
  TextModel model;
  model.tokenizer = std::make_shared<ByteTokenizer>();
  model.options.model_names = {"m"};
  model.options.max_model_len = 6;
  model.options.output = OutputKind::pooled;
  model.options.pooling.dim = 2;

  const PoolingCall both = parse_ollama_embed(R"({"model":"m:latest","input":["ab","abcdefghij"]})", model).value();
  EXPECT_EQ(both.prompt_tokens, 9);  // the second text is cut
  EXPECT_TRUE(both.normalize);
  const Json answer = Json::parse(both.form(both, {{0.5F, 1}, {0, 1}}, 0)).value();
  EXPECT_EQ(answer.string("model"), "m:latest");
  EXPECT_EQ(answer.find("embeddings")->dump(), "[[0.5,1],[0,1]]");
  EXPECT_EQ(answer.integer("prompt_eval_count"), 9);
  EXPECT_FALSE(parse_ollama_embed(R"({"model":"m","input":"abcdefghij","truncate":false})", model).ok());
  EXPECT_EQ(parse_ollama_embed(R"({"model":"m","input":[1]})", model).error().message, "invalid input type");
  EXPECT_THAT(parse_ollama_embed(R"({"model":"m","input":""})", model).value().answer, HasSubstr(R"("embeddings":[])"));

  const PoolingCall old = parse_ollama_embeddings(R"({"model":"m","prompt":"ab"})", model).value();
  EXPECT_EQ(old.form(old, {{0.25F, 2}}, 0), R"({"embedding":[0.25,2]})");
}

}  // namespace
}  // namespace quern
