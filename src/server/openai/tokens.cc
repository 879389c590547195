#include "server/openai/tokens.h"

#include <algorithm>
#include <fmt/format.h>

#include "text/pattern/unicode.h"

namespace quern {
namespace {

constexpr size_t kMaxIds = size_t{1} << 24;

Checked<std::vector<int32_t>> read_text(Fields& fields, const TextModel& model) {
  const auto prompt = fields.string("prompt");
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  fields.stop_describing();
  if (fields.failed()) return *fields.error();
  if (!prompt)
    return ApiError{400, "Missing required parameter: 'prompt' or 'messages'.", "missing_required_parameter", "prompt"};
  auto tokens = model.tokenizer->encode(*prompt, {.add_special = add_special});
  if (!tokens.ok()) return ApiError{400, tokens.error().message, "invalid_value", "prompt"};
  return std::move(tokens).value();
}

/// Bytes that are no text of their own are told as numbers.
Json piece_json(std::string_view bytes) {
  if (is_utf8(bytes)) return Json(bytes);
  Json list(Json::Array{});
  for (const char byte : bytes) list.items().emplace_back(int{static_cast<unsigned char>(byte)});
  return list;
}

/// llama-server's spelling of /tokenize, and its answer.
Checked<std::string> tokenize_content(Fields& fields, const TextModel& model) {
  const auto content = fields.string("content");
  const bool add_special = fields.boolean("add_special").value_or(false);
  const bool parse_special = fields.boolean("parse_special").value_or(true);
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  fields.stop_describing();
  if (fields.failed()) return *fields.error();
  auto tokens = model.tokenizer->encode(*content, {.add_special = add_special, .parse_special = parse_special});
  if (!tokens.ok()) return ApiError{400, tokens.error().message, "invalid_value", "content"};
  Json list(Json::Array{});
  for (const int32_t id : *tokens) {
    list.items().push_back(with_pieces ? Json().set("id", id).set("piece", piece_json(model.tokenizer->token_bytes(id)))
                                       : Json(int64_t{id}));
  }
  return Json().set("tokens", std::move(list)).dump();
}

Json describe(const std::string& name, const ModelState& state, int64_t created) {
  const ModelCard& card = state.card;
  Json model;
  model.set("id", name).set("object", "model").set("created", created).set("owned_by", "quern");
  model.set("root", card.root.empty() ? name : card.root).set("parent", nullptr);
  model.set("max_model_len", int64_t{card.max_model_len}).set("permission", Json::Array{});
  model.set("task", card.output == OutputKind::tokens   ? "generate"
                    : card.output == OutputKind::pooled ? "embed"
                                                        : "score");
  return model.set("loaded", state.model != nullptr);
}

}  // namespace

Checked<std::string> tokenize(Fields& fields, const TextModel& model) {
  read_model(fields, model.options);
  const bool with_texts = fields.boolean("return_token_strs").value_or(false);
  if (fields.failed()) return *fields.error();
  const bool chat = fields.any("messages") != nullptr;
  if (!chat && fields.any("content") != nullptr && fields.any("prompt") == nullptr)
    return tokenize_content(fields, model);
  if (fields.describing()) {
    (void)tokenize_content(fields, model);
    (void)read_text(fields, model);
  }
  std::vector<int32_t> tokens;
  if (chat || fields.describing()) {
    const ToolUse tools = read_tool_use(fields, model);
    auto conversation = render_conversation(fields, model, AnswerParams(), tools);
    fields.describe_as_optional("messages");
    if (!conversation.ok()) return conversation.error();
    tokens = std::move(conversation.value().tokens);
  } else {
    ASSIGN_OR_RETURN(tokens, read_text(fields, model));
  }
  Json out;
  Json ids(Json::Array{});
  Json texts(Json::Array{});
  for (const int32_t id : tokens) {
    ids.items().emplace_back(int64_t{id});
    if (with_texts) texts.items().emplace_back(std::string(model.tokenizer->token_text(id)));
  }
  out.set("count", static_cast<int64_t>(tokens.size())).set("max_model_len", int64_t{model.options.max_model_len});
  out.set("tokens", std::move(ids));
  out.set("token_strs", with_texts ? std::move(texts) : Json());
  return out.dump();
}

Checked<std::string> detokenize(Fields& fields, const TextModel& model) {
  read_model(fields, model.options);
  const auto tokens = fields.token_ids("tokens", model.vocab_size(), kMaxIds);
  if (!tokens) fields.invalid("tokens", "missing_required_parameter", "Missing required parameter: 'tokens'.");
  fields.stop_describing();
  if (fields.failed()) return *fields.error();
  const std::string text = model.tokenizer->decode(*tokens, false);
  return Json().set("prompt", text).set("content", text).dump();
}

std::string tokenizer_info(const TextModel& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  Json info = Json().set("tokenizer_class", "PreTrainedTokenizerFast");
  const auto name = [&](std::string_view variable, std::optional<int32_t> id) {
    const Json* given = model.options.template_variables.find(variable);
    info.set(variable, given != nullptr ? *given : id ? Json(std::string(tokenizer.token_text(*id))) : Json());
  };
  name("bos_token", tokenizer.bos());
  name("eos_token", tokenizer.eos());
  name("pad_token", std::nullopt);
  name("unk_token", std::nullopt);
  const auto empty = tokenizer.encode("", {.add_special = true});
  info.set("add_bos_token", tokenizer.bos() && empty.ok() && !empty->empty() && empty->front() == *tokenizer.bos());
  info.set("model_max_length", int64_t{model.options.max_model_len}).set("vocab_size", int64_t{model.vocab_size()});
  info.set("chat_template", model.chat_template ? Json(model.chat_template->source()) : Json());
  Json added(Json::Object{});
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    added.members().emplace_back(std::to_string(id),
                                 Json().set("content", std::string(tokenizer.token_text(id))).set("special", true));
  }
  return info.set("added_tokens_decoder", std::move(added)).dump();
}

std::string list_models(std::span<const ModelState> models, int64_t created) {
  Json list(Json::Array{});
  for (const ModelState& model : models) {
    for (const std::string& name : model.card.names) list.items().push_back(describe(name, model, created));
  }
  return Json().set("object", "list").set("data", std::move(list)).dump();
}

Checked<std::string> describe_model(std::string_view name, std::span<const ModelState> models, int64_t created) {
  std::vector<std::string> known;
  for (const ModelState& model : models) {
    for (const std::string& one : model.card.names) {
      if (one == name) return describe(one, model, created).dump();
      known.push_back(one);
    }
  }
  return model_not_found(name, known);
}

}  // namespace quern
