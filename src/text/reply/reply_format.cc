#include "text/reply/reply_format.h"

#include <algorithm>
#include <fmt/format.h>

namespace quern {

Result<ReplyFormat> ReplyFormat::make(std::string_view tool_call_parser, std::string_view reasoning_parser,
                                      std::string_view chat_template, const Tokenizer& tokenizer) {
  ReplyFormat format;
  if (tool_call_parser.empty()) {
    format.dialect_ = detect_dialect(chat_template);
    format.detected_ = format.dialect_ != nullptr;
    if (format.dialect_ == nullptr) format.dialect_ = find_dialect("json").value();
  } else if (tool_call_parser != "none") {
    ASSIGN_OR_RETURN(format.dialect_, find_dialect(tool_call_parser));
  }
  const bool whole = format.dialect_ != nullptr && format.dialect_->read_reply != nullptr;
  if (reasoning_parser.empty()) {
    if (!whole) format.thinking_ = detect_thinking(chat_template);
  } else if (const auto named = find_dialect(reasoning_parser);
             reasoning_parser == "openai_gptoss" || (named.ok() && named.value()->read_reply != nullptr)) {
    format.dialect_ = find_dialect("openai").value();
  } else if (reasoning_parser != "none") {
    ASSIGN_OR_RETURN(format.thinking_, find_thinking(reasoning_parser));
  }
  std::vector<std::string_view> all;
  if (format.dialect_ != nullptr) all = format.dialect_->markers;
  if (format.thinking_ != nullptr) all.insert(all.end(), {format.thinking_->begin, format.thinking_->end});
  for (const std::string_view marker : all) {
    const auto id = tokenizer.id_of(marker);
    if (id && tokenizer.is_special(*id)) format.markers_.emplace_back(*id, std::string(marker));
  }
  std::sort(format.markers_.begin(), format.markers_.end());
  return format;
}

bool ReplyFormat::separates_reasoning() const {
  return thinking_ != nullptr || (dialect_ != nullptr && dialect_->read_reply != nullptr);
}

std::string_view ReplyFormat::marker(int32_t token) const {
  const auto at = std::lower_bound(markers_.begin(), markers_.end(), token,
                                   [](const auto& entry, int32_t id) { return entry.first < id; });
  return at != markers_.end() && at->first == token ? std::string_view(at->second) : std::string_view();
}

std::vector<std::string> ReplyFormat::special_markers() const {
  std::vector<std::string> all;
  for (const auto& [id, text] : markers_) all.push_back(text);
  return all;
}

bool ReplyFormat::opens_reasoning(std::string_view prompt_end) const {
  if (thinking_ == nullptr) return false;
  const size_t last = prompt_end.find_last_not_of(" \n\t\r");
  return last != std::string_view::npos && prompt_end.substr(0, last + 1).ends_with(thinking_->begin);
}

std::string ReplyFormat::description() const {
  const std::string calls = dialect_ == nullptr ? "not read"
                            : detected_         ? fmt::format("{} (from the chat template)", dialect_->name)
                                                : std::string(dialect_->name);
  const std::string thoughts = thinking_ != nullptr    ? fmt::format("{} ... {}", thinking_->begin, thinking_->end)
                               : separates_reasoning() ? "in channels"
                                                       : "not marked";
  return fmt::format("tool calls: {}; reasoning: {}", calls, thoughts);
}

}  // namespace quern
