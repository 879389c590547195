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

/// The pair of a template: its texts are called A and B.
Status add_pair_template(Frame& frame, const Json& json);

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
  return add_pair_template(frame, json);
}

Status add_pair_template(Frame& frame, const Json& json) {
  const Json* pieces = json.find("pair");
  if (pieces == nullptr || !pieces->is_array()) return {};
  std::vector<PairPart> parts;
  for (const Json& piece : pieces->items()) {
    const Json* text = piece.find("Sequence");
    const Json* special = piece.find("SpecialToken");
    if (text == nullptr && special == nullptr)
      return Error{"tokenizer.json: TemplateProcessing has a piece of unknown kind"};
    const auto type = static_cast<int32_t>((text != nullptr ? text : special)->integer("type_id").value_or(0) != 0);
    if (text != nullptr) {
      parts.push_back({text->string("id") == "B" ? 1 : 0, 0, type});
      continue;
    }
    std::vector<int32_t> ids;
    TRY(add_special(*special, json.find("special_tokens"), ids));
    for (const int32_t id : ids) parts.push_back({-1, id, type});
  }
  frame.pair = std::move(parts);
  return {};
}

/// BertProcessing and RobertaProcessing: [cls] text [sep], each given as [token, id]. A second text follows with
/// another [sep]; RoBERTa puts one before it too, and knows no types.
Status add_ends(Frame& frame, const Json& json, bool roberta) {
  int32_t sep = 0;
  int32_t cls = 0;
  for (const bool before : {true, false}) {
    const Json* token = json.find(before ? "cls" : "sep");
    if (token == nullptr || !token->is_array() || token->items().size() != 2) {
      return Error{"tokenizer.json: the post-processor lacks \"cls\" or \"sep\""};
    }
    ASSIGN_OR_RETURN(const int32_t id, to_id(token->items()[1]));
    (before ? cls : sep) = id;
    std::vector<int32_t>& ids = before ? frame.before : frame.after;
    ids.insert(before ? ids.begin() : ids.end(), id);
  }
  frame.pair = {{-1, cls, 0}, {0, 0, 0}, {-1, sep, 0}, {1, 0, roberta ? 0 : 1}, {-1, sep, roberta ? 0 : 1}};
  if (roberta) frame.pair.insert(frame.pair.begin() + 3, {-1, sep, 0});
  return {};
}

Status add(Frame& frame, const Json& json) {
  const std::string type = json.string("type").value_or("");
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return add_template(frame, json);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return add_ends(frame, json, type == "RobertaProcessing");
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
