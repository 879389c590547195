#include "server/responses/items.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "base/random.h"

namespace quern {
namespace {

constexpr size_t kMaxItems = 65'536;

ApiError wrong_type(const std::string& path, std::string_view expected, const Json* value) {
  if (value == nullptr) {
    return {400, fmt::format("Missing required parameter: '{}'.", path), "missing_required_parameter", path};
  }
  return {400, fmt::format("Invalid type for '{}': expected {}, but got {} instead.", path, expected, value->kind()),
          "invalid_type", path};
}

ApiError not_supported(const std::string& path, std::string_view what, const std::string& type) {
  return unsupported(path, fmt::format("Unsupported parameter: {} of type '{}' is not supported by this server.", what,
                                       type.substr(0, 64)));
}

/// A part of a content as one that is text; "" for `type` where there is none.
Checked<Json> read_part(const Json& part, const std::string& path, std::string_view type) {
  if (!part.is_object()) return wrong_type(path, "an object", &part);
  const auto given = part.string("type");
  if (!given) return wrong_type(path + ".type", "a string", part.present("type"));
  const bool refusal = *given == "refusal";
  static constexpr std::array<std::string_view, 6> texts = {"input_text",   "output_text",    "text",
                                                            "summary_text", "reasoning_text", "refusal"};
  if (std::find(texts.begin(), texts.end(), *given) == texts.end())
    return not_supported(path + ".type", "content", *given);
  const std::string_view member = refusal ? "refusal" : "text";
  const auto text = part.string(member);
  if (!text) return wrong_type(fmt::format("{}.{}", path, member), "a string", part.present(member));
  Json out = Json().set("type", refusal ? "refusal" : type).set(member, *text);
  if (out.string("type") == "output_text") out.set("annotations", Json::Array{}).set("logprobs", Json::Array{});
  return out;
}

/// A content as a list of parts of this type: text is one part.
Checked<Json::Array> read_parts(const Json* content, const std::string& path, std::string_view type) {
  if (content != nullptr && content->is_string()) {
    ASSIGN_OR_RETURN(Json part, read_part(Json().set("type", "text").set("text", *content), path, type));
    return Json::Array{std::move(part)};
  }
  if (content == nullptr || !content->is_array()) return wrong_type(path, "a string or an array of parts", content);
  Json::Array parts;
  for (size_t i = 0; i < content->items().size(); ++i) {
    ASSIGN_OR_RETURN(Json part, read_part(content->items()[i], fmt::format("{}[{}]", path, i), type));
    parts.push_back(std::move(part));
  }
  return parts;
}

/// The start of an item: its type and its id, or a new one.
Json item_of(const Json& given, std::string_view type, std::string_view prefix) {
  const auto id = given.string("id");
  return Json()
      .set("id", id && !id->empty() ? *id : std::string(prefix) + random_hex())
      .set("type", type)
      .set("status", "completed");
}

/// Copies members that have to be there and have to be strings.
std::optional<ApiError> copy_strings(const Json& from, const std::string& path,
                                     std::initializer_list<std::string_view> names, Json& to) {
  for (const std::string_view name : names) {
    const auto text = from.string(name);
    if (!text) return wrong_type(fmt::format("{}.{}", path, name), "a string", from.present(name));
    to.set(name, *text);
  }
  return std::nullopt;
}

Checked<Json> read_message(const Json& given, const std::string& path) {
  Json item = item_of(given, "message", "msg_");
  if (auto error = copy_strings(given, path, {"role"}, item)) return *error;
  const std::string role = *item.string("role");
  static constexpr std::array<std::string_view, 4> roles = {"user", "assistant", "system", "developer"};
  if (std::find(roles.begin(), roles.end(), role) == roles.end()) {
    return ApiError{400,
                    fmt::format("Invalid value for '{}.role': '{}'. Supported values are: {}.", path,
                                role.substr(0, 64), fmt::join(roles, ", ")),
                    "invalid_value", path + ".role"};
  }
  ASSIGN_OR_RETURN(Json::Array parts, read_parts(given.present("content"), path + ".content",
                                                 role == "assistant" ? "output_text" : "input_text"));
  if (parts.empty() && role != "assistant") {
    return ApiError{400, fmt::format("Invalid '{}.content': expected at least one part.", path), "invalid_value",
                    path + ".content"};
  }
  item.set("content", std::move(parts));
  return item;
}

/// How a model thought: what it wrote, or a summary of that.
Checked<Json> read_reasoning(const Json& given, const std::string& path) {
  Json item = item_of(given, "reasoning", "rs_");
  for (const auto& [name, type] : {std::pair("summary", "summary_text"), std::pair("content", "reasoning_text")}) {
    const Json* content = given.present(name);
    auto parts = content == nullptr ? Checked<Json::Array>(Json::Array{})
                                    : read_parts(content, fmt::format("{}.{}", path, name), type);
    if (!parts.ok()) return parts.error();
    item.set(name, std::move(parts).value());
  }
  return item;
}

Checked<Json> read_item(const Json& given, const std::string& path) {
  if (!given.is_object()) return wrong_type(path, "an object", &given);
  const Json* type = given.present("type");
  if (type != nullptr && !type->is_string()) return wrong_type(path + ".type", "a string", type);
  const std::string kind = type == nullptr ? "message" : type->as_string();
  if (kind == "message") return read_message(given, path);
  if (kind == "reasoning") return read_reasoning(given, path);
  if (kind == "function_call") {
    Json item = item_of(given, kind, "fc_");
    if (auto error = copy_strings(given, path, {"call_id", "name", "arguments"}, item)) return *error;
    return item;
  }
  if (kind == "function_call_output") {
    Json item = item_of(given, kind, "fco_");
    if (auto error = copy_strings(given, path, {"call_id"}, item)) return *error;
    const Json* output = given.present("output");
    ASSIGN_OR_RETURN(Json::Array parts, read_parts(output, path + ".output", "input_text"));
    item.set("output", output->is_string() ? *output : Json(std::move(parts)));
    return item;
  }
  return not_supported(path + ".type", "an item", kind);
}

/// The texts of a content, one a line.
std::string text_of(const Json* content) {
  if (content == nullptr) return "";
  if (content->is_string()) return content->as_string();
  std::string text;
  for (const Json& part : content->items()) {
    if (&part != &content->items().front()) text += '\n';
    text += part.string(part.has("refusal") ? "refusal" : "text").value_or("");
  }
  return text;
}

/// Collects messages; what the assistant says, thinks and calls is one of them until somebody else speaks.
class Chat {
 public:
  void add(const Json& item) {
    const std::string type = *item.string("type");
    if (type == "reasoning") {
      if (has_content_ || !calls_.empty()) flush();
      const std::string thought = text_of(item.find("content"));
      reasoning_ += thought.empty() ? text_of(item.find("summary")) : thought;
    } else if (type == "function_call") {
      Json function = Json().set("name", *item.string("name")).set("arguments", *item.string("arguments"));
      calls_.push_back(
          Json().set("id", *item.string("call_id")).set("type", "function").set("function", std::move(function)));
    } else if (type == "function_call_output") {
      push(Json()
               .set("role", "tool")
               .set("tool_call_id", *item.string("call_id"))
               .set("content", text_of(item.find("output"))));
    } else if (item.string("role") == "assistant") {
      if (has_content_ || !calls_.empty()) flush();
      content_ = text_of(item.find("content"));
      has_content_ = true;
    } else {
      push(Json().set("role", *item.string("role")).set("content", text_of(item.find("content"))));
    }
  }

  void push(Json message) {
    flush();
    messages_.push_back(std::move(message));
  }

  Json::Array finish() {
    flush();
    return std::move(messages_);
  }

 private:
  void flush() {
    if (!has_content_ && calls_.empty() && reasoning_.empty()) return;
    Json message = Json().set("role", "assistant").set("content", std::exchange(content_, {}));
    if (!reasoning_.empty()) message.set("reasoning_content", std::exchange(reasoning_, {}));
    if (!calls_.empty()) message.set("tool_calls", std::exchange(calls_, {}));
    has_content_ = false;
    messages_.push_back(std::move(message));
  }

  Json::Array messages_;
  std::string reasoning_;
  std::string content_;
  bool has_content_ = false;
  Json::Array calls_;
};

bool is_system(const Json& item) { return item.string("role") == "system" || item.string("role") == "developer"; }

}  // namespace

Checked<Json::Array> read_items(const Json& input) {
  if (input.is_string()) {
    ASSIGN_OR_RETURN(Json item, read_message(Json().set("role", "user").set("content", input), "input"));
    return Json::Array{std::move(item)};
  }
  if (!input.is_array()) return wrong_type("input", "a string or an array of items", &input);
  if (input.items().empty() || input.items().size() > kMaxItems) {
    return ApiError{400, fmt::format("Invalid 'input': expected 1 to {} items.", kMaxItems), "invalid_value", "input"};
  }
  Json::Array items;
  for (size_t i = 0; i < input.items().size(); ++i) {
    ASSIGN_OR_RETURN(Json item, read_item(input.items()[i], fmt::format("input[{}]", i)));
    items.push_back(std::move(item));
  }
  return items;
}

Json::Array chat_of_items(const Json::Array& items, const std::string& instructions) {
  Chat chat;
  std::string system = instructions;
  std::string role = "system";
  auto item = items.begin();
  for (; item != items.end() && is_system(*item); ++item) {
    if (system.empty()) role = *item->string("role");
    if (!system.empty()) system += "\n\n";
    system += text_of(item->find("content"));
  }
  if (!system.empty()) chat.push(Json().set("role", role).set("content", std::move(system)));
  for (; item != items.end(); ++item) chat.add(*item);
  return chat.finish();
}

}  // namespace quern
