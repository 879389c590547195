// Messages of a chat request -> tokens, by the model's chat template.
#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>

#include "server/openai/generation.h"

namespace quern {
namespace {

constexpr size_t kMaxMessages = 65'536;
constexpr size_t kMaxParts = 65'536;
constexpr size_t kMaxDocuments = 65'536;

/// Variables that belong to the server; `chat_template_kwargs` may not set them.
constexpr std::array<std::string_view, 13> kReserved = {"messages",
                                                        "tools",
                                                        "documents",
                                                        "add_generation_prompt",
                                                        "continue_final_message",
                                                        "bos_token",
                                                        "eos_token",
                                                        "pad_token",
                                                        "unk_token",
                                                        "chat_template",
                                                        "tokenize",
                                                        "strftime_now",
                                                        "raise_exception"};

struct Messages {
  Json list = Json(Json::Array{});
  size_t bytes = 0;
  int64_t calls = 0;
  std::string last_call_id;
  std::string last_content;
  std::string last_role;
};

std::optional<ApiError> add_part(const Json& part, const std::string& path, std::string& text) {
  if (!part.is_object()) {
    return ApiError{400,
                    fmt::format("Invalid type for '{}': expected an object, but got {} instead.", path, part.kind()),
                    "invalid_type", path};
  }
  const auto type = part.string("type");
  if (!type)
    return ApiError{400, fmt::format("Missing required parameter: '{}.type'.", path), "missing_required_parameter",
                    path + ".type"};
  const std::string_view member = *type == "refusal" ? "refusal" : "text";
  if (*type != "text" && *type != "refusal" && *type != "input_text" && *type != "output_text") {
    const bool known = *type == "image_url" || *type == "input_audio" || *type == "file" || *type == "video_url" ||
                       *type == "audio_url";
    return ApiError{400, fmt::format("Content of type '{}' is not supported by this model.", type->substr(0, 64)),
                    known ? "unsupported_parameter" : "invalid_value", path + ".type"};
  }
  const Json* content = part.present(member);
  if (content == nullptr || !content->is_string()) {
    return ApiError{400, fmt::format("Invalid type for '{}.{}': expected a string.", path, member), "invalid_type",
                    fmt::format("{}.{}", path, member)};
  }
  if (!text.empty()) text += '\n';
  text += content->as_string();
  return std::nullopt;
}

/// Text parts are joined by line breaks.
Checked<std::string> read_content(const Json& message, const std::string& path, bool optional) {
  const Json* content = message.present("content");
  if (content == nullptr) {
    if (optional) return std::string();
    return ApiError{400, fmt::format("Missing required parameter: '{}.content'.", path), "missing_required_parameter",
                    path + ".content"};
  }
  if (content->is_string()) return content->as_string();
  if (!content->is_array()) {
    return ApiError{
        400,
        fmt::format("Invalid type for '{}.content': expected a string or an array of parts, but got {} instead.", path,
                    content->kind()),
        "invalid_type", path + ".content"};
  }
  if (content->items().empty() || content->items().size() > kMaxParts) {
    return ApiError{400, fmt::format("Invalid '{}.content': expected 1 to {} parts.", path, kMaxParts), "invalid_value",
                    path + ".content"};
  }
  std::string text;
  for (size_t i = 0; i < content->items().size(); ++i) {
    if (auto error = add_part(content->items()[i], fmt::format("{}.content[{}]", path, i), text)) return *error;
  }
  return text;
}

/// Arguments as the template wants them; text that is no JSON object stays text where it can.
Json arguments_for(const CallRendering& wanted, const Json& given) {
  const std::string text = given.is_string() ? given.as_string() : given.dump();
  Json object = given;
  if (given.is_string()) {
    auto parsed = Json::parse(text.empty() ? "{}" : text);
    object = parsed.ok() ? std::move(parsed).value() : Json();
  }
  if (!object.is_object()) return wanted.takes_text ? Json(text) : Json().set("arguments", text);
  if (wanted.takes_objects) return object;
  return given.is_string() && !text.empty() ? Json(text) : Json(object.dump());
}

/// Ids as the template wants them: Mistral's refuses any but 9 letters and digits.
std::string id_for(const TextModel& model, std::string id) {
  const Dialect* dialect = model.options.reply_format.dialect();
  if (dialect == nullptr || dialect->ids != CallIds::nine || id.size() == 9) return id;
  std::erase_if(id, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  if (id.size() > 9) id.erase(0, id.size() - 9);
  return std::string(9 - id.size(), '0') + id;
}

/// Calls of earlier messages.
Checked<Json> read_calls(const Json& calls, const std::string& path, const TextModel& model) {
  Json out(Json::Array{});
  const ApiError wrong{400, fmt::format("Invalid type for '{}.tool_calls': expected an array of function calls.", path),
                       "invalid_type", path + ".tool_calls"};
  if (!calls.is_array()) return wrong;
  for (const Json& call : calls.items()) {
    const Json* function = call.present("function");
    if (function == nullptr || !function->string("name")) return wrong;
    Json copy = call;
    Json named = *function;
    const Json* arguments = function->present("arguments");
    named.set("arguments", arguments_for(model.calls, arguments == nullptr ? Json("") : *arguments));
    copy.set("function", std::move(named));
    if (!copy.has("type")) copy.set("type", "function");
    if (const auto id = call.string("id")) copy.set("id", id_for(model, *id));
    out.items().push_back(std::move(copy));
  }
  return out;
}

std::optional<ApiError> copy_strings(const Json& message, const std::string& path, Json& out) {
  for (const std::string_view name : {"name", "tool_call_id", "reasoning", "reasoning_content", "refusal"}) {
    const Json* value = message.present(name);
    if (value == nullptr) continue;
    if (!value->is_string()) {
      const std::string full = fmt::format("{}.{}", path, name);
      return ApiError{400,
                      fmt::format("Invalid type for '{}': expected a string, but got {} instead.", full, value->kind()),
                      "invalid_type", full};
    }
    if (name == "reasoning") {
      out.set("reasoning_content", *value);
    } else if (name != "refusal") {
      out.set(name, *value);
    }
  }
  return std::nullopt;
}

/// A message in the older form of calls, in the newer one.
Json modern(const Json& message, Messages& messages) {
  const Json* call = message.present("function_call");
  const bool result = message.string("role") == "function";
  if (call == nullptr && !result) return message;
  Json out = message;
  if (call != nullptr) {
    messages.last_call_id = fmt::format("call{:05}", messages.calls);
    Json modern_call;
    modern_call.set("id", messages.last_call_id).set("type", "function").set("function", *call);
    out.set("tool_calls", Json::Array{std::move(modern_call)}).set("function_call", nullptr);
  }
  if (result) out.set("role", "tool").set("tool_call_id", messages.last_call_id);
  return out;
}

Checked<std::string> read_role(const Json& message, const std::string& path) {
  if (!message.is_object()) {
    return ApiError{400,
                    fmt::format("Invalid type for '{}': expected an object, but got {} instead.", path, message.kind()),
                    "invalid_type", path};
  }
  const auto role = message.string("role");
  if (!role)
    return ApiError{400, fmt::format("Missing required parameter: '{}.role'.", path), "missing_required_parameter",
                    path + ".role"};
  static constexpr std::array<std::string_view, 6> roles = {"system",    "developer", "user",
                                                            "assistant", "tool",      "function"};
  if (std::find(roles.begin(), roles.end(), *role) == roles.end()) {
    return ApiError{
        400, fmt::format("Invalid value: '{}'. Supported values are: {}.", role->substr(0, 64), fmt::join(roles, ", ")),
        "invalid_value", path + ".role"};
  }
  return *role;
}

std::optional<ApiError> add_message(const Json& given, const std::string& path, const TextModel& model,
                                    Messages& messages) {
  const auto role = read_role(given, path);
  if (!role.ok()) return role.error();
  const Json message = modern(given, messages);
  const std::string shown_role = *message.string("role");
  if (shown_role == "tool" && !message.string("tool_call_id")) {
    return ApiError{400, fmt::format("Missing required parameter: '{}.tool_call_id'.", path),
                    "missing_required_parameter", path + ".tool_call_id"};
  }
  const bool knows_developer =
      model.chat_template && model.chat_template->source().find("developer") != std::string::npos;
  Json out;
  out.set("role", shown_role == "developer" && !knows_developer ? "system" : shown_role);
  const Json* calls = message.present("tool_calls");
  const bool has_calls = calls != nullptr && (!calls->is_array() || !calls->items().empty());
  auto content = read_content(message, path,
                              shown_role == "assistant" && (calls != nullptr || message.present("refusal") != nullptr));
  if (!content.ok()) return std::move(content).error();
  messages.bytes += content.value().size();
  messages.last_content = content.value();
  messages.last_role = shown_role;
  const bool nothing = has_calls && content.value().empty() && model.calls.takes_no_content;
  out.set("content", nothing ? Json() : Json(std::move(content).value()));
  if (auto error = copy_strings(message, path, out)) return error;
  if (const auto id = out.string("tool_call_id")) out.set("tool_call_id", id_for(model, *id));
  if (const Json* reasoning = out.find("reasoning_content");
      reasoning != nullptr && model.calls.reads_thinking && (!has_calls || messages.last_content.empty())) {
    out.set("thinking", Json(*reasoning));
  }
  if (has_calls) {
    auto read = read_calls(*calls, path, model);
    if (!read.ok()) return std::move(read).error();
    messages.calls += static_cast<int64_t>(read.value().items().size());
    out.set("tool_calls", std::move(read).value());
  }
  messages.list.items().push_back(std::move(out));
  return std::nullopt;
}

Checked<Messages> read_messages(Fields& fields, const TextModel& model) {
  const Json::Array* messages = fields.array("messages", kMaxMessages);
  if (fields.failed()) return *fields.error();
  if (messages == nullptr) {
    fields.invalid("messages", "missing_required_parameter", "Missing required parameter: 'messages'.");
    return fields.error().value_or(ApiError());
  }
  if (messages->empty())
    return ApiError{400, "Invalid 'messages': expected at least one message.", "invalid_value", "messages"};
  Messages read;
  for (size_t i = 0; i < messages->size(); ++i) {
    if (auto error = add_message((*messages)[i], fmt::format("messages[{}]", i), model, read)) return *error;
  }
  return read;
}

/// Adds the client's variables; what belongs to the server is refused.
void add_variables(Fields& fields, Json& variables) {
  if (const auto effort =
          fields.choice("reasoning_effort", {"none", "minimal", "low", "medium", "high", "xhigh", "max"})) {
    variables.set("reasoning_effort", *effort);
    if (*effort == "none") variables.set("enable_thinking", false);
  }
  const Json* extra = fields.object("chat_template_kwargs");
  if (extra == nullptr) return;
  for (const auto& [name, value] : extra->members()) {
    if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end()) {
      return fields.invalid("chat_template_kwargs", "invalid_value",
                            fmt::format("Invalid 'chat_template_kwargs': '{}' cannot be set by a request.", name));
    }
    variables.set(name, value);
  }
}

/// What a conversation is rendered by, and the documents that it is about.
struct Choice {
  const ChatTemplate* chat_template = nullptr;
  Json documents;
};

/// A template of the model's own by its name: those of clients are not rendered.
const ChatTemplate* read_template(Fields& fields, const TextModel& model) {
  const auto name = fields.string("chat_template");
  if (!name || name->empty() || !model.chat_template) return model.chat_template.get();
  const ChatTemplate* const named = model.chat_template->named(*name);
  if (named != nullptr) return named;
  const std::vector<std::string> names = model.chat_template->names();
  fields.fail(unsupported("chat_template",
                          names.empty()
                              ? std::string("Unsupported parameter: 'chat_template' names one of several templates "
                                            "of a model, and this model has one.")
                              : fmt::format("Unsupported parameter: 'chat_template' names one of this model's "
                                            "templates: {}.",
                                            fmt::join(names, ", "))));
  return nullptr;
}

/// The templates that show documents, for people.
std::string templates_with_documents(const ChatTemplate& chat_template) {
  std::string list;
  for (const std::string& name : chat_template.names()) {
    if (chat_template.named(name)->source().find("documents") == std::string::npos) continue;
    list += fmt::format("{}'{}'", list.empty() ? "; 'chat_template' can be " : " or ", name);
  }
  return list;
}

Choice read_choice(Fields& fields, const TextModel& model, const ToolUse& tools) {
  Choice choice{read_template(fields, model), {}};
  const Json::Array* const documents = fields.array("documents", kMaxDocuments);
  if (documents == nullptr || documents->empty()) return choice;
  for (const Json& document : *documents) {
    if (!document.is_object()) fields.wrong_kind("documents", "an array of objects", document);
  }
  if (choice.chat_template == nullptr) return choice;
  if (choice.chat_template->source_for(!tools.offered.is_null()).find("documents") == std::string::npos) {
    fields.fail(
        unsupported("documents", fmt::format("Unsupported parameter: the chat template does not show 'documents'{}.",
                                             templates_with_documents(*model.chat_template))));
  }
  choice.documents = Json(*documents);
  return choice;
}

/// Ends the text with the content of the last message, so that the model goes on with it.
std::optional<ApiError> cut_after_content(std::string content, std::vector<TextPiece>& pieces) {
  const auto blank = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  while (!content.empty() && blank(content.back())) content.pop_back();
  const size_t at = join(pieces).rfind(content);
  if (content.empty() || at == std::string::npos) {
    return ApiError{400, "The chat template does not keep the last message as it is, so it cannot be continued.",
                    "invalid_value", "continue_final_message"};
  }
  size_t left = at + content.size();
  for (TextPiece& piece : pieces) {
    piece.text.resize(std::min(piece.text.size(), left));
    left -= piece.text.size();
  }
  return std::nullopt;
}

Json base_variables(const TextModel& model) {
  Json variables = model.options.template_variables;
  const auto set = [&](std::string_view name, std::optional<int32_t> id) {
    if (id && !variables.has(name)) variables.set(name, std::string(model.tokenizer->token_text(*id)));
  };
  set("bos_token", model.tokenizer->bos());
  set("eos_token", model.tokenizer->eos());
  return variables;
}

/// The end of what the template itself wrote.
std::string trusted_end(const std::vector<TextPiece>& pieces) {
  std::string end;
  for (auto piece = pieces.rbegin(); piece != pieces.rend() && piece->trusted && end.size() < 64; ++piece)
    end.insert(0, piece->text);
  return end;
}

}  // namespace

Checked<Rendering> render_messages(Fields& fields, const TextModel& model, const AnswerParams& params,
                                   const ToolUse& tools) {
  const bool add_special = fields.boolean("add_special_tokens").value_or(false);
  const auto add_prompt = fields.boolean("add_generation_prompt");
  const bool go_on = fields.boolean("continue_final_message").value_or(false);
  if (go_on && add_prompt.value_or(false)) {
    fields.invalid("continue_final_message", "invalid_value",
                   "'continue_final_message' and 'add_generation_prompt' cannot both be true.");
  }
  Choice choice = read_choice(fields, model, tools);
  Json variables = base_variables(model);
  add_variables(fields, variables);
  auto read = read_messages(fields, model);
  if (fields.failed()) return *fields.error();
  if (fields.describing()) return ApiError();
  if (!read.ok()) return std::move(read).error();
  if (!model.chat_template)
    return ApiError{400,
                    "This model has no chat template: use /v1/completions, or start the server with --chat-template.",
                    "unsupported_value", "messages"};
  const size_t bytes = read.value().bytes + (choice.documents.is_null() ? 0 : choice.documents.dump().size());
  if (auto error = check_text_size(model, bytes, params, "messages")) return *error;

  Messages& talk = read.value();
  if (go_on && talk.last_role != "assistant") {
    return ApiError{400, "'continue_final_message' needs an assistant message at the end.", "invalid_value",
                    "continue_final_message"};
  }
  variables.set("messages", std::move(talk.list));
  if (!choice.documents.is_null()) variables.set("documents", std::move(choice.documents));
  if (!tools.offered.is_null()) variables.set("tools", tools.offered);
  variables.set("add_generation_prompt", add_prompt.value_or(!go_on));
  auto pieces = choice.chat_template->render(variables, {"bos_token", "eos_token", "pad_token", "unk_token"},
                                             model.template_limits);
  if (!pieces.ok())
    return ApiError{400, fmt::format("The chat template refuses these messages: {}.", pieces.error().message),
                    "invalid_value", "messages"};
  if (go_on) {
    if (auto error = cut_after_content(talk.last_content, pieces.value())) return *error;
  }
  return Rendering{std::move(pieces).value(), add_special, talk.calls};
}

Checked<Conversation> render_conversation(Fields& fields, const TextModel& model, const AnswerParams& params,
                                          const ToolUse& tools) {
  ASSIGN_OR_RETURN(const Rendering rendering, render_messages(fields, model, params, tools));
  auto tokens = model.tokenizer->encode_pieces(rendering.pieces, rendering.add_special);
  if (!tokens.ok()) return ApiError{400, tokens.error().message, "invalid_value", "messages"};
  Conversation conversation;
  conversation.tokens = std::move(tokens).value();
  conversation.opens_reasoning = model.options.reply_format.opens_reasoning(trusted_end(rendering.pieces));
  conversation.calls = rendering.calls;
  return conversation;
}

}  // namespace quern
