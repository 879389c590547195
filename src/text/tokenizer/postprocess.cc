#include "text/tokenizer/postprocess.h"

#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string>

namespace quern {
namespace {

Result<int32_t> to_id(const Json& json) {
  if (json.is_integer() && json.as_integer() >= 0 && json.as_integer() <= std::numeric_limits<int32_t>::max()) {
    return static_cast<int32_t>(json.as_integer());
  }
  return Error{"tokenizer.json: the post-processor has a token id that is no id"};
}

/// Appends the ids of the special token that `piece` names in a template.
Status add_special(const Json& special, const Json* known, std::vector<int32_t>& ids) {
  const std::string name = special.string("id").value_or("");
  const Json* entry = known != nullptr ? known->find(name) : nullptr;
  const Json* list = entry != nullptr ? entry->find("ids") : nullptr;
  if (list == nullptr || !list->is_array()) {
    return Error{fmt::format("tokenizer.json: the post-processor uses special token \"{}\" without defining it", name)};
  }
  for (const Json& item : list->items()) {
    ASSIGN_OR_RETURN(const int32_t id, to_id(item));
    ids.push_back(id);
  }
  return {};
}

Status add_template(Frame& frame, const Json& json) {
  const Json* single = json.find("single");
  if (single == nullptr || !single->is_array()) return Error{"tokenizer.json: TemplateProcessing lacks \"single\""};
  Frame added;
  int sequences = 0;
  for (const Json& piece : single->items()) {
    if (piece.has("Sequence")) {
      ++sequences;
    } else if (const Json* special = piece.find("SpecialToken")) {
      TRY(add_special(*special, json.find("special_tokens"), sequences == 0 ? added.before : added.after));
    } else {
      return Error{"tokenizer.json: TemplateProcessing has a piece of unknown kind"};
    }
  }
  if (sequences != 1) return Error{"tokenizer.json: TemplateProcessing must hold the text exactly once"};
  frame.before.insert(frame.before.begin(), added.before.begin(), added.before.end());
  frame.after.insert(frame.after.end(), added.after.begin(), added.after.end());
  return {};
}

/// BertProcessing and RobertaProcessing: [cls] text [sep], each given as [token, id].
Status add_pair(Frame& frame, const Json& json) {
  for (const bool before : {true, false}) {
    const Json* token = json.find(before ? "cls" : "sep");
    if (token == nullptr || !token->is_array() || token->items().size() != 2) {
      return Error{"tokenizer.json: the post-processor lacks \"cls\" or \"sep\""};
    }
    ASSIGN_OR_RETURN(const int32_t id, to_id(token->items()[1]));
    std::vector<int32_t>& ids = before ? frame.before : frame.after;
    ids.insert(before ? ids.begin() : ids.end(), id);
  }
  return {};
}

Status add(Frame& frame, const Json& json) {
  const std::string type = json.string("type").value_or("");
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return add_template(frame, json);
  if (type == "BertProcessing" || type == "RobertaProcessing") return add_pair(frame, json);
  if (type == "Sequence") {
    const Json* list = json.find("processors");
    if (list == nullptr || !list->is_array()) return Error{"tokenizer.json: Sequence lacks \"processors\""};
    for (const Json& item : list->items()) TRY(add(frame, item));
    return {};
  }
  return Error{fmt::format("tokenizer.json: post-processor \"{}\" is not supported", type)};
}

}  // namespace

Result<Frame> frame_from_json(const Json* json) {
  Frame frame;
  if (json != nullptr && !json->is_null()) TRY(add(frame, *json));
  return frame;
}

}  // namespace quern
