// Bodies of requests: whatever comes in is a request within its limits or a clear refusal.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "server/openai/generation.h"
#include "server/openai/tokens.h"
#include "server/scripted_service.h"

namespace {

using quern::TextModel;

TextModel make_model() {
  TextModel model;
  model.options.model_names = {"model"};
  model.options.max_model_len = 4096;
  model.tokenizer = std::make_shared<quern::ByteTokenizer>();
  auto parsed = quern::ChatTemplate::parse(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments }}"
      "{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  CHECK(parsed.ok());
  model.chat_template = std::make_shared<const quern::ChatTemplate>(std::move(parsed).value());
  return model;
}

void check_error(const quern::ApiError& error) {
  CHECK(error.status == 400 || error.status == 404);
  CHECK(!error.message.empty());
  CHECK(quern::Json::parse(quern::error_body(error)).ok());
}

void check_request(const quern::Checked<quern::Generation>& parsed, const TextModel& model) {
  if (!parsed.ok()) return check_error(parsed.error());
  auto generation = parsed;
  const quern::AnswerParams& params = generation.value().params;
  CHECK(params.n >= 1 && params.n <= 128);
  CHECK(params.sampling.temperature >= 0 && params.sampling.temperature <= 2);
  CHECK(params.sampling.top_p > 0 && params.sampling.top_p <= 1);
  for (const std::string& stop : params.stops) CHECK(!stop.empty());
  CHECK(!generation.value().prompts.empty());
  for (const quern::Prompt& prompt : generation.value().prompts) {
    CHECK(!prompt.tokens.empty());
    CHECK(static_cast<int64_t>(prompt.tokens.size()) + prompt.max_tokens <= model.options.max_model_len);
    for (const int32_t id : prompt.tokens) CHECK(id >= 0 && id < model.vocab_size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const TextModel model = make_model();
  const std::string_view body(reinterpret_cast<const char*>(bytes), size);
  check_request(quern::parse_chat(body, model), model);
  check_request(quern::parse_completion(body, model), model);
  auto json = quern::parse_body(body);
  if (!json.ok()) return 0;
  const quern::Json given = std::move(json).value();
  for (auto* read : {quern::tokenize, quern::detokenize}) {
    quern::Fields fields(given);
    if (const auto answer = read(fields, model); !answer.ok()) check_error(answer.error());
  }
  return 0;
}
