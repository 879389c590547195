#include "server/ollama/requests.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <utility>

#include "server/llama/peer.h"
#include "server/ollama/messages.h"
#include "server/ollama/options.h"
#include "server/ollama/wire.h"
#include "server/openai/fill_in.h"

namespace quern {
namespace {

constexpr size_t kMaxMessages = 65'536;
constexpr size_t kMaxContext = size_t{1} << 24;

/// Loading, which has happened, or unloading.
Generation loaded(const OllamaCommon& common, bool chat) {
  Generation generation;
  generation.answer = ollama_loaded(common.model, chat, common.keep_alive_s == 0);
  generation.keep_alive_s = common.keep_alive_s;
  return generation;
}

Generation finished(Generation generation, const OllamaCommon& common, std::vector<std::string> unknown,
                    const OllamaForm& form) {
  generation.protocol = Protocol::ollama;
  generation.model = common.model;
  generation.keep_alive_s = common.keep_alive_s;
  generation.unknown_fields = std::move(unknown);
  generation.form = std::make_shared<const OllamaForm>(form);
  return generation;
}

/// /api/generate as it goes on.
class GenerateReader {
 public:
  GenerateReader(Fields& fields, const TextModel& model) : model_(model), fields_(fields) {}

  Checked<Generation> read() {
    OllamaCommon common = read_ollama_common(fields_, model_.options);
    read_fields();
    Json body;
    const bool plain = raw_ || !suffix_.empty() || !model_.chat_template;
    const Json* variables = fields_.object("chat_template_kwargs");
    if (variables != nullptr && !plain) body.set("chat_template_kwargs", *variables);
    read_ollama_options(fields_, model_, plain, common, body);
    std::vector<std::string> unknown;
    read_unknown(fields_, model_.options, unknown);
    if (fields_.failed()) return *fields_.error();
    if (fields_.describing()) return Generation();
    if (prompt_.empty()) return loaded(common, false);
    ASSIGN_OR_RETURN(Generation generation, plain ? read_plain(std::move(body), std::move(common.limits))
                                                  : read_templated(std::move(body), std::move(common.limits)));
    return finished(std::move(generation), common, std::move(unknown), OllamaForm(false, !raw_));
  }

 private:
  void read_fields() {
    prompt_ = fields_.string("prompt").value_or("");
    suffix_ = fields_.string("suffix").value_or("");
    system_ = fields_.string("system").value_or("");
    raw_ = fields_.boolean("raw").value_or(false);
    context_ = fields_.token_ids("context", model_.vocab_size(), kMaxContext).value_or(std::vector<int32_t>());
    if (const Json* images = fields_.one_of("images", {Fields::Kind::array});
        images != nullptr && !images->items().empty())
      fields_.fail(no_images());
    fields_.refuse({"template", "_debug_render_only", "width", "height", "steps"});
    if (raw_ && (!system_.empty() || !context_.empty())) {
      fields_.invalid("raw", "invalid_value", "raw mode does not support template, system, or context");
    }
    if (!suffix_.empty() && !middle_marks(*model_.tokenizer)) {
      fields_.fail(unsupported("suffix", "this model does not support insert: it has no tokens for filling in"));
    }
    if (!raw_ && suffix_.empty() && !model_.chat_template && !system_.empty()) {
      fields_.fail(unsupported("system", "this model has no chat template, so there is no place for system"));
    }
  }

  /// The prompt as it is, or with what follows it.
  Checked<Generation> read_plain(Json body, PeerLimits limits) const {
    std::vector<TextPiece> pieces = {{prompt_, raw_}};
    if (!suffix_.empty()) pieces = middle_pieces(*middle_marks(*model_.tokenizer), prompt_, suffix_);
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, encode_prompt(model_, pieces, context_.empty()));
    ids.insert(ids.begin(), context_.begin(), context_.end());
    body.set("prompt", Json::Array{ids_json(ids)});
    return read_peer_completion(body, std::move(limits), model_);
  }

  Checked<Generation> read_templated(Json body, PeerLimits limits) const {
    Json::Array messages;
    if (!system_.empty()) messages.push_back(Json().set("role", "system").set("content", system_));
    messages.push_back(Json().set("role", "user").set("content", prompt_));
    body.set("messages", std::move(messages));
    ASSIGN_OR_RETURN(Generation generation, read_peer_chat(std::move(body), std::move(limits), model_));
    if (!context_.empty()) {
      if (auto error = put_before(context_, generation)) return *error;
    }
    return generation;
  }

  /// The conversation so far; it has begun with the beginning of text.
  std::optional<ApiError> put_before(const std::vector<int32_t>& context, Generation& generation) const {
    Prompt& prompt = generation.prompts.front();
    std::vector<int32_t>& tokens = prompt.tokens;
    if (!tokens.empty() && tokens.front() == model_.tokenizer->bos()) tokens.erase(tokens.begin());
    tokens.insert(tokens.begin(), context.begin(), context.end());
    return fit_prompt(model_, generation.params, model_.options.defaults.max_tokens, "context", prompt);
  }

  const TextModel& model_;
  Fields& fields_;
  std::string prompt_;
  std::string suffix_;
  std::string system_;
  bool raw_ = false;
  std::vector<int32_t> context_;
};

}  // namespace

Checked<Generation> parse_ollama_generate(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  return read_ollama_generate(fields, model);
}

Checked<Generation> read_ollama_generate(Fields& fields, const TextModel& model) {
  return GenerateReader(fields, model).read();
}

Checked<Generation> parse_ollama_chat(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  return read_ollama_chat(fields, model);
}

Checked<Generation> read_ollama_chat(Fields& fields, const TextModel& model) {
  OllamaCommon common = read_ollama_common(fields, model.options);
  Json chat;
  if (const Json* variables = fields.object("chat_template_kwargs")) chat.set("chat_template_kwargs", *variables);
  read_ollama_options(fields, model, false, common, chat);
  fields.refuse({"_debug_render_only"});
  const Json::Array* tools = fields.array("tools", kMaxMessages);
  const Json::Array* messages = fields.array("messages", kMaxMessages);
  std::vector<std::string> unknown;
  read_unknown(fields, model.options, unknown);
  if (fields.failed()) return *fields.error();
  if (fields.describing()) return Generation();
  if (messages == nullptr || messages->empty()) return loaded(common, true);
  OllamaMessages read;
  for (size_t i = 0; i < messages->size(); ++i) {
    if (auto error = read.add((*messages)[i], fmt::format("messages[{}]", i))) return *error;
  }
  chat.set("messages", read.take());
  if (tools != nullptr && !tools->empty()) chat.set("tools", *tools);
  ASSIGN_OR_RETURN(Generation generation, read_peer_chat(std::move(chat), std::move(common.limits), model));
  return finished(std::move(generation), common, std::move(unknown), OllamaForm(true, false));
}

}  // namespace quern
