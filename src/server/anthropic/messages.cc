#include "server/anthropic/messages.h"

#include <fmt/format.h>

namespace quern {
namespace {

constexpr size_t kMaxMessages = 65'536;

ApiError wrong(std::string message, std::string param) {
  return {400, std::move(message), "invalid_value", std::move(param)};
}

/// The text of a content: a string, or text blocks joined by line breaks.
Checked<std::string> text_of(const Json& content, const std::string& path) {
  if (content.is_string()) return content.as_string();
  if (!content.is_array()) return wrong(fmt::format("{}: expected a string or an array of blocks.", path), path);
  std::string text;
  for (const Json& block : content.items()) {
    const std::string type = block.string("type").value_or("");
    const auto part = block.string("text");
    if (type != "text" || !part) {
      return ApiError{400,
                      fmt::format("{}: content of type '{}' is not supported by this model.", path, type.substr(0, 64)),
                      "unsupported_parameter", path};
    }
    if (!text.empty()) text += '\n';
    text += *part;
  }
  return text;
}

/// One message in parts; those of an assistant become one message, the results of tools messages of their own.
struct Parts {
  std::string text;
  std::string reasoning;
  Json::Array calls;
  Json::Array results;
};

std::optional<ApiError> add_block(const Json& block, const std::string& path, Parts& parts) {
  const std::string type = block.string("type").value_or("");
  if (type == "text" && block.string("text")) {
    if (!parts.text.empty()) parts.text += '\n';
    parts.text += *block.string("text");
  } else if (type == "thinking") {
    parts.reasoning += block.string("thinking").value_or("");
  } else if (type == "redacted_thinking") {
    return std::nullopt;
  } else if (type == "tool_use" && block.string("id") && block.string("name")) {
    const Json* input = block.present("input");
    Json function;
    function.set("name", *block.string("name")).set("arguments", input == nullptr ? "{}" : input->dump());
    parts.calls.push_back(
        Json().set("id", *block.string("id")).set("type", "function").set("function", std::move(function)));
  } else if (type == "tool_result" && block.string("tool_use_id")) {
    const Json* content = block.present("content");
    auto text = content == nullptr ? Checked<std::string>(std::string()) : text_of(*content, path + ".content");
    if (!text.ok()) return text.error();
    parts.results.push_back(Json()
                                .set("role", "tool")
                                .set("tool_call_id", *block.string("tool_use_id"))
                                .set("content", std::move(text).value()));
  } else {
    return ApiError{400,
                    fmt::format("{}: a block of type '{}' is not supported by this model, or not complete.", path,
                                type.substr(0, 64)),
                    "unsupported_parameter", path};
  }
  return std::nullopt;
}

std::optional<ApiError> add_message(const Json& message, const std::string& path, Json::Array& out) {
  const std::string role = message.string("role").value_or("");
  if (role != "user" && role != "assistant")
    return wrong(fmt::format("{}.role: expected user or assistant.", path), path);
  const Json* content = message.present("content");
  if (content == nullptr) return wrong(fmt::format("{}.content: this field is required.", path), path);
  Parts parts;
  if (content->is_string()) {
    parts.text = content->as_string();
  } else if (content->is_array()) {
    for (size_t i = 0; i < content->items().size(); ++i) {
      if (auto error = add_block(content->items()[i], fmt::format("{}.content.{}", path, i), parts)) return error;
    }
  } else {
    return wrong(fmt::format("{}.content: expected a string or an array of blocks.", path), path);
  }
  for (Json& result : parts.results) out.push_back(std::move(result));
  if (role == "user" && parts.text.empty() && !parts.results.empty()) return std::nullopt;
  Json chat;
  chat.set("role", role).set("content", std::move(parts.text));
  if (!parts.reasoning.empty()) chat.set("reasoning_content", std::move(parts.reasoning));
  if (!parts.calls.empty()) chat.set("tool_calls", std::move(parts.calls));
  out.push_back(std::move(chat));
  return std::nullopt;
}

Checked<Json::Array> read_messages(const Json* system, const Json* messages) {
  Json::Array out;
  if (system != nullptr) {
    auto text = text_of(*system, "system");
    if (!text.ok()) return text.error();
    out.push_back(Json().set("role", "system").set("content", std::move(text).value()));
  }
  if (messages == nullptr || !messages->is_array() || messages->items().empty() ||
      messages->items().size() > kMaxMessages) {
    return wrong("messages: expected at least one message.", "messages");
  }
  for (size_t i = 0; i < messages->items().size(); ++i) {
    if (auto error = add_message(messages->items()[i], fmt::format("messages.{}", i), out)) return *error;
  }
  return out;
}

/// Tools of a client; the vendor's own ones, which run at the vendor, are passed over, or refused.
Checked<Json::Array> read_tools(const Json& tools, bool strict, std::vector<std::string>& passed_over) {
  Json::Array out;
  if (!tools.is_array()) return wrong("tools: expected an array.", "tools");
  for (size_t i = 0; i < tools.items().size(); ++i) {
    const Json& tool = tools.items()[i];
    const auto type = tool.string("type");
    if (type && *type != "custom") {
      passed_over.push_back(fmt::format("tools.{}.type={}", i, type->substr(0, 64)));
      if (!strict) continue;
      return ApiError{400, fmt::format("{}: this server cannot run such tools.", passed_over.back()),
                      "unsupported_parameter", "tools"};
    }
    const auto name = tool.string("name");
    if (!name) return wrong(fmt::format("tools.{}.name: this field is required.", i), "tools");
    Json function;
    function.set("name", *name);
    if (const auto description = tool.string("description")) function.set("description", *description);
    if (const Json* schema = tool.present("input_schema")) function.set("parameters", *schema);
    out.push_back(Json().set("type", "function").set("function", std::move(function)));
  }
  return out;
}

std::optional<ApiError> read_tool_choice(const Json& choice, Json& chat) {
  const std::string type = choice.string("type").value_or("");
  if (choice.boolean("disable_parallel_tool_use").value_or(false)) chat.set("parallel_tool_calls", false);
  if (type == "auto" || type == "none") {
    chat.set("tool_choice", type);
  } else if (type == "any") {
    chat.set("tool_choice", "required");
  } else if (type == "tool" && choice.string("name")) {
    Json named;
    named.set("type", "function").set("function", Json().set("name", *choice.string("name")));
    chat.set("tool_choice", std::move(named));
  } else {
    return wrong("tool_choice: expected auto, any, none, or tool with a name.", "tool_choice");
  }
  return std::nullopt;
}

/// The schema that an answer is held to, under its name of today or of the beta before.
std::optional<ApiError> read_format(const Json* config, const Json* format, Json& chat) {
  if (config != nullptr && config->present("format") != nullptr) format = config->present("format");
  if (format == nullptr) return std::nullopt;
  const Json* schema = format->present("schema");
  if (format->string("type") != "json_schema" || schema == nullptr)
    return wrong("output_config.format: expected the type json_schema with a schema.", "output_config");
  Json named = Json().set("name", "output").set("schema", *schema).set("strict", true);
  chat.set("response_format", Json().set("type", "json_schema").set("json_schema", std::move(named)));
  return std::nullopt;
}

/// Hints that change nothing here, and what needs the vendor's machines.
void read_rest(Fields& fields) {
  fields.ignore(Fields::Kind::object, {"metadata", "context_management", "cache_control"});
  fields.ignore(Fields::Kind::string, {"service_tier", "inference_geo"});
  fields.refuse({"container", "mcp_servers"});
}

}  // namespace

Checked<MessagesRequest> chat_of_messages(Fields& fields, const ServerOptions& options, bool needs_max_tokens) {
  using Kind = Fields::Kind;
  MessagesRequest request;
  Json& chat = request.chat;
  const Json* system = fields.one_of("system", {Kind::string, Kind::array});
  const Json* messages = fields.one_of("messages", {Kind::array});
  const Json* tools = fields.one_of("tools", {Kind::array});
  const Json* choice = fields.one_of("tool_choice", {Kind::object});
  const Json* thinking = fields.one_of("thinking", {Kind::object});
  const Json* config = fields.one_of("output_config", {Kind::object});
  const Json* format = fields.one_of("output_format", {Kind::object});
  const Json* given = fields.one_of("chat_template_kwargs", {Kind::object});
  read_rest(fields);
  for (const std::string_view name : {"model", "temperature", "top_p", "top_k", "stream", "max_tokens"}) {
    if (const Json* value = fields.any(name)) chat.set(name, *value);
  }
  if (const Json* stops = fields.one_of("stop_sequences", {Kind::array})) chat.set("stop", *stops);
  fields.stop_describing();
  if (fields.failed()) return *fields.error();
  if (needs_max_tokens && chat.find("max_tokens") == nullptr) {
    return ApiError{400, "max_tokens: this field is required.", "missing_required_parameter", "max_tokens"};
  }
  auto read = read_messages(system, messages);
  if (!read.ok()) return read.error();
  chat.set("messages", std::move(read).value());
  if (tools != nullptr) {
    auto offered = read_tools(*tools, options.strict_params, request.passed_over);
    if (!offered.ok()) return offered.error();
    chat.set("tools", std::move(offered).value());
  }
  if (choice != nullptr) {
    Json chosen;
    if (auto error = read_tool_choice(*choice, chosen)) return *error;
    const std::string type = choice->string("type").value_or("");
    const bool offered = chat.find("tools") != nullptr && !chat.find("tools")->items().empty();
    if (!offered && (type == "any" || type == "tool"))
      return wrong("tool_choice: there are no tools to choose from.", "tool_choice");
    for (auto& [name, value] : chosen.members()) {
      if (offered) chat.set(name, std::move(value));
    }
  }
  if (auto error = read_format(config, format, chat)) return *error;
  Json variables = given == nullptr ? Json() : *given;
  if (thinking != nullptr) {
    const bool on = thinking->string("type") != "disabled";
    variables.set("enable_thinking", on).set("thinking", on);
  }
  if (variables.is_object()) chat.set("chat_template_kwargs", std::move(variables));
  return request;
}

Checked<Generation> parse_messages(std::string_view body, const TextModel& model) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  Fields fields(json);
  ASSIGN_OR_RETURN(MessagesRequest request, chat_of_messages(fields, model.options, true));
  std::vector<std::string> unknown;
  read_unknown(fields, model.options, unknown);
  if (fields.failed()) return *fields.error();
  ASSIGN_OR_RETURN(Generation generation, read_chat(request.chat, model));
  generation.protocol = Protocol::anthropic;
  generation.unknown_fields = std::move(unknown);
  for (std::string& tool : request.passed_over) generation.unknown_fields.push_back(std::move(tool));
  return generation;
}

Checked<std::string> count_message_tokens(Fields& given, const TextModel& model) {
  ASSIGN_OR_RETURN(const MessagesRequest request, chat_of_messages(given, model.options, false));
  Fields fields(request.chat);
  read_model(fields, model.options);
  const ToolUse tools = read_tool_use(fields, model);
  ASSIGN_OR_RETURN(const Conversation conversation, render_conversation(fields, model, AnswerParams(), tools));
  return Json().set("input_tokens", static_cast<int64_t>(conversation.tokens.size())).dump();
}

}  // namespace quern
