#include "server/responses/request.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <utility>

namespace quern {
namespace {

constexpr size_t kMaxTools = 1024;
constexpr size_t kMaxPairs = 16;
constexpr size_t kMaxKeyBytes = 64;
constexpr size_t kMaxValueBytes = 512;
constexpr size_t kMaxIncludes = 64;
constexpr int32_t kMaxCount = std::numeric_limits<int32_t>::max();

/// Fields that mean here what they mean in a chat, which reads them.
constexpr std::string_view kOfChat[] = {"top_k",
                                        "min_p",
                                        "typical_p",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "logit_bias",
                                        "bad_words",
                                        "repetition_penalty",
                                        "repeat_last_n",
                                        "allowed_token_ids",
                                        "seed",
                                        "stop",
                                        "stop_token_ids",
                                        "ignore_eos",
                                        "include_stop_str_in_output",
                                        "min_tokens",
                                        "priority",
                                        "cache_salt",
                                        "include_reasoning",
                                        "skip_special_tokens",
                                        "request_id",
                                        "session_id",
                                        "structured_outputs",
                                        "prompt_cache_key",
                                        "chat_template_kwargs",
                                        "safety_identifier",
                                        "user",
                                        "temperature",
                                        "top_p",
                                        "stream",
                                        "parallel_tool_calls",
                                        "metadata",
                                        "prompt_cache_retention"};

void unsupported_field(Fields& fields, std::string_view name, std::string_view why) {
  const std::string full = fields.full_name(name);
  fields.fail(unsupported(full, fmt::format("Unsupported parameter: '{}' {}.", full, why)));
}

void need(Fields& fields, std::string_view name) {
  fields.invalid(name, "missing_required_parameter",
                 fmt::format("Missing required parameter: '{}'.", fields.full_name(name)));
}

Json or_null(const std::optional<std::string>& text) { return text ? Json(*text) : Json(); }
Json or_null(const Json* value) { return value == nullptr ? Json() : *value; }

class Reader {
 public:
  Reader(Fields& fields, const ServerOptions& options) : fields_(fields), options_(options) {}

  ResponseRequest read() {
    for (const std::string_view name : kOfChat) {
      if (const Json* value = fields_.any(name)) out_.chat.set(name, *value);
    }
    if (!out_.chat.is_object()) out_.chat = Json(Json::Object{});
    read_conversation();
    read_limits();
    read_text();
    read_reasoning();
    read_tools();
    read_choice();
    read_logprobs();
    read_metadata();
    read_rest();
    return std::move(out_);
  }

 private:
  void read_conversation() {
    out_.input = or_null(fields_.one_of("input", {Fields::Kind::string, Fields::Kind::array}));
    if (out_.input.is_null()) need(fields_, "input");
    const auto instructions = fields_.string("instructions");
    out_.instructions = instructions.value_or("");
    out_.object.set("instructions", or_null(instructions));
    out_.previous = fields_.string("previous_response_id");
    out_.object.set("previous_response_id", or_null(out_.previous));
    out_.kept = fields_.boolean("store").value_or(true);
    out_.object.set("store", out_.kept);
  }

  void read_limits() {
    const auto tokens = fields_.integer("max_output_tokens", 1, kMaxCount);
    if (tokens) out_.chat.set("max_completion_tokens", *tokens);
    out_.object.set("max_output_tokens", tokens ? Json(*tokens) : Json());
    // Of tools that the server runs, of which there are none.
    const auto calls = fields_.integer("max_tool_calls", 1, kMaxCount);
    out_.object.set("max_tool_calls", calls ? Json(*calls) : Json());
    if (fields_.choice("truncation", {"auto", "disabled"}) == "auto")
      unsupported_field(
          fields_, "truncation",
          "cannot be 'auto', since this server leaves nothing of a conversation out: send fewer items, or "
          "'disabled'");
    fields_.members("stream_options",
                    [](Fields& members) { members.ignore(Fields::Kind::boolean, {"include_obfuscation"}); });
  }

  /// The schema of an answer stands in the format itself, not in an object of it.
  void read_text() {
    Json shown = Json().set("format", Json().set("type", "text"));
    fields_.members("text", [&](Fields& members) {
      if (const auto verbosity = members.choice("verbosity", {"low", "medium", "high"}))
        shown.set("verbosity", *verbosity);
      members.members("format", [&](Fields& format) { read_format(format, shown); });
    });
    out_.object.set("text", std::move(shown));
  }

  void read_format(Fields& members, Json& shown) {
    const auto type = members.choice("type", {"text", "json_object", "json_schema"});
    if (!type) need(members, "type");
    const auto name = members.string("name");
    const auto description = members.string("description");
    const auto strict = members.boolean("strict");
    const Json* schema = members.object("schema");
    if (type == "json_object") {
      out_.chat.set("response_format", Json().set("type", *type));
      shown.set("format", Json().set("type", *type));
    } else if (type == "json_schema") {
      if (!name) need(members, "name");
      if (schema == nullptr) need(members, "schema");
      Json inner =
          Json().set("name", or_null(name)).set("schema", or_null(schema)).set("strict", strict.value_or(false));
      Json outer = Json().set("type", *type);
      for (const auto& [key, value] : inner.members()) outer.set(key, value);
      shown.set("format", std::move(outer.set("description", or_null(description))));
      out_.chat.set("response_format", Json().set("type", *type).set("json_schema", std::move(inner)));
    }
  }

  void read_reasoning() {
    Json shown = Json().set("effort", nullptr).set("summary", nullptr);
    fields_.members("reasoning", [&](Fields& members) {
      const auto effort = members.choice("effort", {"none", "minimal", "low", "medium", "high", "xhigh", "max"});
      if (effort) out_.chat.set("reasoning_effort", *effort);
      shown.set("effort", or_null(effort));
      for (const std::string_view name : {"summary", "generate_summary"}) {
        const auto summary = members.choice(name, {"auto", "concise", "detailed"});
        if (summary && *summary != "auto")
          unsupported_field(members, name, "can only be 'auto': reasoning is given as it is, not as a summary");
        if (summary) shown.set("summary", *summary);
      }
    });
    out_.object.set("reasoning", std::move(shown));
  }

  /// Tools of other kinds run at their vendor; agents offer them beside their own ones.
  void read_tools() {
    Json::Array shown;
    Json::Array offered;
    const Json::Array* tools = fields_.array("tools", kMaxTools);
    for (size_t i = 0; tools != nullptr && i < tools->size() && !fields_.failed(); ++i) {
      const Json& tool = (*tools)[i];
      if (!tool.is_object()) return fields_.wrong_kind("tools", "objects", tool);
      Fields members(tool, fmt::format("tools[{}].", i));
      const auto type = members.string("type");
      if (members.failed()) return finish(members);
      if (type && *type != "function") {
        pass_over(members, *type);
      } else {
        read_function(members, shown, offered);
      }
    }
    if (!offered.empty()) out_.chat.set("tools", std::move(offered));
    out_.object.set("tools", std::move(shown));
  }

  void pass_over(Fields& tool, const std::string& type) {
    if (options_.strict_params) {
      unsupported_field(tool, "type", fmt::format("is '{}', which this server cannot run", type.substr(0, 64)));
      return finish(tool);
    }
    out_.passed_over.push_back(tool.full_name("type") + "=" + type);
  }

  void read_function(Fields& tool, Json::Array& shown, Json::Array& offered) {
    const auto name = tool.string("name");
    if (!name) need(tool, "name");
    const auto description = tool.string("description");
    const Json* parameters = tool.object("parameters");
    const auto strict = tool.boolean("strict");
    if (tool.failed()) return finish(tool);
    Json function = Json().set("name", *name);
    if (description) function.set("description", *description);
    if (parameters != nullptr) function.set("parameters", *parameters);
    if (strict) function.set("strict", *strict);
    offered.push_back(Json().set("type", "function").set("function", std::move(function)));
    shown.push_back(Json()
                        .set("type", "function")
                        .set("name", *name)
                        .set("description", or_null(description))
                        .set("parameters", or_null(parameters))
                        .set("strict", strict ? Json(*strict) : Json()));
  }

  void read_choice() {
    const Json* choice = fields_.one_of("tool_choice", {Fields::Kind::string, Fields::Kind::object});
    out_.object.set("tool_choice", choice == nullptr ? Json("auto") : *choice);
    if (choice == nullptr) return;
    if (choice->is_string()) return void(out_.chat.set("tool_choice", *choice));
    Fields members(*choice, "tool_choice.");
    const auto type = members.string("type");
    if (!type) need(members, "type");
    if (type == "function") {
      const auto name = members.string("name");
      if (!name) need(members, "name");
      out_.chat.set("tool_choice", Json().set("type", *type).set("function", Json().set("name", or_null(name))));
    } else if (type == "allowed_tools") {
      out_.chat.set("tool_choice", Json().set("type", *type).set("allowed_tools", *choice));
    } else if (type) {
      unsupported_field(members, "type", fmt::format("cannot be '{}' on this server", type->substr(0, 64)));
    }
    finish(members);
  }

  void read_logprobs() {
    const Json::Array* include = fields_.array("include", kMaxIncludes);
    for (const Json& item : include == nullptr ? Json::Array() : *include) {
      if (!item.is_string()) return fields_.wrong_kind("include", "strings", item);
      if (item.as_string() == "message.output_text.logprobs") {
        out_.logprobs = true;
      } else if (item.as_string() != "reasoning.encrypted_content") {  // reasoning is given in the clear
        unsupported_field(fields_, "include",
                          fmt::format("cannot have '{}' on this server", item.as_string().substr(0, 64)));
      }
    }
    const int32_t most = options_.max_logprobs < 0 ? std::numeric_limits<int32_t>::max() : options_.max_logprobs;
    const auto top = fields_.integer("top_logprobs", 0, most);
    out_.object.set("top_logprobs", top.value_or(0));
    if (top && *top > 0) out_.logprobs = true;
    if (out_.logprobs) out_.chat.set("logprobs", true).set("top_logprobs", top.value_or(0));
  }

  void read_metadata() {
    const Json* metadata = out_.chat.find("metadata");
    out_.object.set("metadata", metadata == nullptr ? Json(Json::Object{}) : *metadata);
    if (metadata == nullptr || !metadata->is_object()) return;
    bool fits = metadata->members().size() <= kMaxPairs;
    for (const auto& [key, value] : metadata->members()) {
      fits = fits && key.size() <= kMaxKeyBytes && value.is_string() && value.as_string().size() <= kMaxValueBytes;
    }
    if (fits) return;
    fields_.invalid(
        "metadata", "invalid_value",
        fmt::format("Invalid 'metadata': expected at most {} pairs, keys of at most {} bytes and strings of "
                    "at most {} bytes.",
                    kMaxPairs, kMaxKeyBytes, kMaxValueBytes));
  }

  void read_rest() {
    for (const std::string_view name : {"prompt_cache_key", "safety_identifier", "user"})
      out_.object.set(name, or_null(out_.chat.find(name)));
    const Json* parallel = out_.chat.find("parallel_tool_calls");
    out_.object.set("parallel_tool_calls", parallel == nullptr ? Json(true) : *parallel);
    fields_.choice("service_tier", {"auto", "default", "flex", "scale", "priority", "fast"});
    out_.object.set("service_tier", "default").set("background", false).set("truncation", "disabled");
    refuse("background",
           "cannot be true, since every response is made while its client waits: leave it out, and stream if it "
           "takes long");
    refuse("conversation",
           "names what this server does not keep: give the items as 'input', or the response before as "
           "'previous_response_id'");
    fields_.refuse({"background", "conversation", "prompt", "context_management", "prompt_cache_options", "moderation",
                    "enable_response_messages", "previous_input_messages", "kv_transfer_params", "vllm_xargs",
                    "mm_processor_kwargs", "truncate_prompt_tokens"});
  }

  /// A field of the list below that has a sentence of its own.
  void refuse(std::string_view name, std::string_view why) {
    const Json* value = fields_.any(name);
    const bool neutral = value == nullptr || *value == Json(false) || *value == Json("") ||
                         *value == Json(Json::Array{}) || *value == Json(Json::Object{});
    if (!neutral) unsupported_field(fields_, name, why);
  }

  void finish(const Fields& members) {
    if (members.failed()) fields_.fail(*members.error());
  }

  Fields& fields_;
  const ServerOptions& options_;
  ResponseRequest out_;
};

}  // namespace

ResponseRequest read_response_request(Fields& fields, const ServerOptions& options) {
  return Reader(fields, options).read();
}

}  // namespace quern
