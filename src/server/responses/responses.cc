#include "server/responses/responses.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fmt/format.h>
#include <utility>

#include "base/random.h"
#include "server/responses/items.h"
#include "server/responses/request.h"

namespace quern {
namespace {

constexpr std::string_view kPrefix = "/v1/responses/";

/// How fields of a chat request are called here.
constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"response_format.json_schema", "text.format"},
                                                                    {"response_format", "text.format"},
                                                                    {"messages", "input"},
                                                                    {"max_completion_tokens", "max_output_tokens"},
                                                                    {"max_tokens", "max_output_tokens"}};

void replace(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// "messages[2].content" of a chat request is not what the client called it.
std::string own_name(std::string param) {
  for (const auto& [of_chat, own] : kNames) {
    if (!param.starts_with(of_chat)) continue;
    param.replace(0, of_chat.size(), own);
    break;
  }
  replace(param, "].function.", "].");
  return param;
}

ApiError in_own_words(ApiError error) {
  error.param = own_name(std::move(error.param));
  for (const auto& [of_chat, own] : kNames)
    replace(error.message, fmt::format("'{}", of_chat), fmt::format("'{}", own));
  replace(error.message, "].function.", "].");
  replace(error.message, "with max_completion_tokens", "with max_output_tokens");
  return error;
}

ApiError not_found(std::string_view id) {
  ApiError error = plain_error(404, fmt::format("Response with id '{}' not found.", id.substr(0, 128)));
  error.type = "invalid_request_error";
  return error;
}

/// The items of a request and of all before it.
struct Talk {
  std::vector<StoredResponse::Text> texts;
  Json::Array items;
};

Checked<Talk> read_talk(const ResponseRequest& request, const ResponseShelf& shelf) {
  Talk talk;
  if (request.previous) {
    const auto before = shelf.store->find(shelf.owner, *request.previous);
    if (!before) {
      return ApiError{400, fmt::format("Previous response with id '{}' not found.", request.previous->substr(0, 128)),
                      "previous_response_not_found", "previous_response_id"};
    }
    talk.texts = before->items;
    for (const StoredResponse::Text& text : talk.texts) talk.items.push_back(Json::parse(*text).value());
  }
  ASSIGN_OR_RETURN(Json::Array items, read_items(request.input));
  for (Json& item : items) {
    if (request.kept) talk.texts.push_back(std::make_shared<const std::string>(item.dump()));
    talk.items.push_back(std::move(item));
  }
  return talk;
}

struct Asked {
  ResponseRequest request;
  Talk talk;
  std::vector<std::string> unknown_fields;
};

Checked<Asked> read(const Json& body, const TextModel& model, const ResponseShelf& shelf) {
  Fields fields(body);
  Asked asked;
  const std::string name = read_model(fields, model.options);
  asked.request = read_response_request(fields, model.options);
  read_unknown(fields, model.options, asked.unknown_fields);
  if (fields.failed()) return *fields.error();
  ASSIGN_OR_RETURN(asked.talk, read_talk(asked.request, shelf));
  asked.request.chat.set("model", name);
  asked.request.chat.set("messages", chat_of_items(asked.talk.items, asked.request.instructions));
  for (std::string& tool : asked.request.passed_over) asked.unknown_fields.push_back(std::move(tool));
  return asked;
}

/// All members that a response object has, in the order of the documentation.
Json response_object(const std::string& id, const Generation& generation, const Json& asked) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const SamplingParams& sampling = generation.params.sampling;
  const auto number = [](float value) { return Json(std::stod(fmt::format("{}", value))); };
  Json object;
  object.set("id", id).set("object", "response");
  object.set("created_at", static_cast<int64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count()));
  object.set("completed_at", nullptr).set("status", "in_progress").set("error", nullptr);
  object.set("incomplete_details", nullptr).set("model", generation.model).set("output", Json::Array{});
  for (const auto& [key, value] : asked.members()) object.set(key, value);
  object.set("temperature", number(sampling.temperature)).set("top_p", number(sampling.top_p));
  object.set("presence_penalty", number(sampling.presence_penalty));
  object.set("frequency_penalty", number(sampling.frequency_penalty));
  object.set("usage", nullptr);
  return object;
}

/// A value of the query; "" when it is not there.
std::string_view query_value(std::string_view target, std::string_view name) {
  size_t at = target.find('?');
  while (at != std::string_view::npos) {
    std::string_view pair = target.substr(at + 1);
    pair = pair.substr(0, pair.find('&'));
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=')) return pair.substr(name.size() + 1);
    at = target.find('&', at + 1);
  }
  return "";
}

/// The newest first, unless `order` is asc; `limit` of them, those that follow `after`.
Checked<std::string> list_inputs(std::string_view target, const StoredResponse& stored) {
  std::vector<std::pair<std::string, const std::string*>> items;  // ids and texts
  for (size_t i = 0; i < stored.inputs; ++i)
    items.emplace_back(*Json::parse(*stored.items[i]).value().string("id"), stored.items[i].get());
  const std::string_view order = query_value(target, "order");
  if (order != "" && order != "asc" && order != "desc")
    return ApiError{400, "Invalid value for 'order': Supported values are: asc, desc.", "invalid_value", "order"};
  if (order != "asc") std::reverse(items.begin(), items.end());
  size_t limit = 20;
  if (const std::string_view text = query_value(target, "limit"); !text.empty()) {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (failure != std::errc() || end != text.data() + text.size() || limit < 1 || limit > 100)
      return ApiError{400, "Invalid 'limit': expected a number from 1 to 100.", "invalid_value", "limit"};
  }
  auto first = items.begin();
  if (const std::string_view after = query_value(target, "after"); !after.empty()) {
    first = std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == after; });
    if (first == items.end()) return ApiError{400, "Invalid 'after': there is no such item.", "invalid_value", "after"};
    ++first;
  }
  const auto end = first + static_cast<std::ptrdiff_t>(std::min(limit, static_cast<size_t>(items.end() - first)));
  std::string data;
  for (auto item = first; item != end; ++item) data += (item == first ? "" : ",") + *item->second;
  Json list = Json().set("object", "list").set("has_more", end != items.end());
  list.set("first_id", first == end ? Json() : Json(first->first));
  list.set("last_id", first == end ? Json() : Json(std::prev(end)->first));
  std::string text = list.dump();
  text.back() = ',';
  return text + "\"data\":[" + data + "]}";
}

}  // namespace

Checked<Generation> parse_responses(std::string_view body, const TextModel& model, const ResponseShelf& shelf) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  ASSIGN_OR_RETURN(Asked asked, read(json, model, shelf));
  auto read = read_chat(asked.request.chat, model);
  if (!read.ok()) return in_own_words(read.error());
  Generation generation = std::move(read).value();
  generation.protocol = Protocol::responses;
  generation.constraint_param = own_name(std::move(generation.constraint_param));
  generation.unknown_fields = std::move(asked.unknown_fields);
  auto plan = std::make_shared<ResponsePlan>();
  plan->id = "resp_" + random_hex();
  plan->object = response_object(plan->id, generation, asked.request.object);
  plan->logprobs = asked.request.logprobs;
  plan->kept = asked.request.kept;
  plan->shelf = shelf;
  plan->items = std::move(asked.talk.texts);
  generation.response = std::move(plan);
  return generation;
}

Checked<std::string> count_response_tokens(std::string_view body, const TextModel& model, const ResponseShelf& shelf,
                                           std::vector<std::string>& unknown_fields) {
  ASSIGN_OR_RETURN(const Json json, parse_body(body));
  ASSIGN_OR_RETURN(Asked asked, read(json, model, shelf));
  unknown_fields = std::move(asked.unknown_fields);
  Fields fields(asked.request.chat);
  const ToolUse tools = read_tool_use(fields, model);
  auto conversation = render_conversation(fields, model, AnswerParams(), tools);
  if (!conversation.ok()) return in_own_words(conversation.error());
  return Json()
      .set("object", "response.input_tokens")
      .set("input_tokens", static_cast<int64_t>(conversation.value().tokens.size()))
      .dump();
}

Checked<std::string> stored_response(const HttpRequest& request, std::string_view path, const ResponseShelf& shelf) {
  const std::string_view rest = path.substr(std::min(path.size(), kPrefix.size()));
  const std::string id(rest.substr(0, rest.find('/')));
  if (request.method == "DELETE") {
    if (!shelf.store->erase(shelf.owner, id)) return not_found(id);
    return Json().set("id", id).set("object", "response").set("deleted", true).dump();
  }
  const auto stored = shelf.store->find(shelf.owner, id);
  if (!stored) return not_found(id);
  if (rest.ends_with("/cancel")) {
    return ApiError{400, "Only responses that run in the background can be cancelled; this one has ended.",
                    "invalid_value", ""};
  }
  if (rest.ends_with("/input_items")) return list_inputs(request.target, *stored);
  if (query_value(request.target, "stream") == "true") {
    return unsupported("stream", "Unsupported parameter: 'stream' needs a response that runs in the background.");
  }
  return stored->body;
}

}  // namespace quern
