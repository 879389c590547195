#include "server/ollama/messages.h"

#include <algorithm>
#include <fmt/format.h>

namespace quern {
namespace {

ApiError wrong(const std::string& path, std::string_view what) {
  return {400, fmt::format("{}: {}", path, what), "invalid_value", path};
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

}  // namespace

ApiError no_images() { return unsupported("images", "this model takes text only: leave out images"); }

std::optional<ApiError> OllamaMessages::add(const Json& message, const std::string& path) {
  if (!message.is_object()) return wrong(path, "expected an object");
  const auto role = message.string("role");
  if (!role) return wrong(path, "a message needs a role");
  const Json* images = message.present("images");
  if (images != nullptr && (!images->is_array() || !images->items().empty())) return no_images();
  const Json* content = message.present("content");
  if (content != nullptr && !content->is_string()) return wrong(path + ".content", "expected a string");
  Json out;
  out.set("role", lower(*role)).set("content", content == nullptr ? "" : content->as_string());
  if (const auto thinking = message.string("thinking"); thinking && !thinking->empty())
    out.set("reasoning_content", *thinking);
  if (const Json* calls = message.present("tool_calls")) {
    if (auto error = add_calls(*calls, path + ".tool_calls", out)) return error;
  }
  if (out.string("role") == "tool") {
    out.set("tool_call_id", call_of_result(message));
    if (const auto name = message.string("tool_name")) out.set("name", *name);
  }
  messages_.push_back(std::move(out));
  return std::nullopt;
}

std::optional<ApiError> OllamaMessages::add_calls(const Json& calls, const std::string& path, Json& out) {
  if (!calls.is_array()) return wrong(path, "expected an array");
  Json::Array made;
  for (const Json& call : calls.items()) {
    const Json* function = call.present("function");
    const auto name = function == nullptr ? std::nullopt : function->string("name");
    if (!name) return wrong(path, "a call needs a function with a name");
    const Json* arguments = function->present("arguments");
    const std::string text = arguments == nullptr     ? "{}"
                             : arguments->is_string() ? arguments->as_string()
                                                      : arguments->dump();
    const auto given = call.string("id");
    const std::string id = given && !given->empty() ? *given : fmt::format("call_{:08}", calls_);
    ++calls_;
    open_.emplace_back(id, *name);
    made.push_back(
        Json().set("id", id).set("type", "function").set("function", Json().set("name", *name).set("arguments", text)));
  }
  if (!made.empty()) out.set("tool_calls", std::move(made));
  return std::nullopt;
}

/// Results name their call by id, by function or by their order.
std::string OllamaMessages::call_of_result(const Json& message) {
  const std::string id = message.string("tool_call_id").value_or("");
  const std::string name = message.string("tool_name").value_or("");
  auto found = std::ranges::find_if(open_, [&](const auto& call) { return !id.empty() && call.first == id; });
  if (found == open_.end() && id.empty())
    found = std::ranges::find_if(open_, [&](const auto& call) { return call.second == name; });
  if (found == open_.end() && id.empty()) found = open_.begin();
  if (found == open_.end()) return id.empty() ? "call_00000000" : id;
  std::string answer = found->first;
  open_.erase(found);
  return answer;
}

}  // namespace quern
