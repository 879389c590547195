#include "text/reply/reply_reader.h"

#include <algorithm>

#include "base/json.h"

namespace quern {
namespace {

constexpr std::string_view kSpace = " \n\t\r";

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }

/// Bytes at the end that are the start of a character.
size_t open_bytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;
    const size_t length = byte >= 0xF8 ? 1 : byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

ReplyReader::ReplyReader(const ReplyOptions& options, std::vector<std::string> specials)
    : options_(options), specials_(std::move(specials)) {}

void ReplyReader::add(std::string_view text) {
  if (done_) return;
  text_.erase(0, std::exchange(at_, 0));
  text_ += tail_;
  text_ += text;
  const size_t open = open_bytes(text_);
  tail_ = text_.substr(text_.size() - open);
  text_.resize(text_.size() - open);
  run();
}

void ReplyReader::close() {
  text_ += std::exchange(tail_, {});
  closed_ = true;
  run();
  const bool answered_only_by_calls = calls_ > 0 || (thought_ && !content_.begun);
  if (!done_ && !content_.held.empty() && !answered_only_by_calls) {
    append(pieces_, {ReplyPiece::Kind::content, -1, std::exchange(content_.held, {}), {}});
  }
}

void ReplyReader::run() {
  while (!done_ && waiting_ != nullptr && waiting_->poll()) {
    waiting_ = nullptr;
    sleeping_.resume();
  }
}

bool ReplyReader::is_special(std::string_view marker) const {
  return std::find(specials_.begin(), specials_.end(), marker) != specials_.end();
}

std::string ReplyReader::spelled(std::string_view text) const {
  return is_special(text) ? kSpecialMark + std::string(text) : std::string(text);
}

std::vector<ReplyReader::Spelled> ReplyReader::spelled(const std::vector<Sought>& all) const {
  std::vector<Spelled> out;
  for (const Sought& one : all) out.push_back({spelled(one.text), one.at_line_start});
  return out;
}

void ReplyReader::consume(size_t count) {
  if (attempting_) raw_.append(text_, at_, count);
  at_ += count;
}

std::optional<int> ReplyReader::peek_now() const {
  if (at_ < text_.size()) return static_cast<unsigned char>(text_[at_]);
  if (closed_) return -1;
  return std::nullopt;
}

std::optional<int> ReplyReader::next_now() {
  const auto byte = peek_now();
  if (byte && *byte >= 0) consume(1);
  return byte;
}

std::optional<bool> ReplyReader::take_now(const std::string& wanted) {
  const std::string_view rest = std::string_view(text_).substr(at_);
  if (rest.starts_with(wanted)) {
    consume(wanted.size());
    return true;
  }
  if (closed_ || !std::string_view(wanted).starts_with(rest)) return false;
  return std::nullopt;
}

std::optional<int> ReplyReader::skip_space_now() {
  size_t end = at_;
  while (end < text_.size() && is_space(text_[end])) ++end;
  consume(end - at_);
  return peek_now();
}

std::optional<int> ReplyReader::seek(const std::vector<Spelled>& all, const Sink& sink) {
  const size_t begin = at_;
  size_t i = at_;
  std::optional<int> found;
  for (; i < text_.size(); ++i) {
    bool may_begin = false;
    for (size_t k = 0; k < all.size() && !found; ++k) {
      const std::string& wanted = all[k].text;
      if (text_[i] != wanted[0] || (all[k].at_line_start && !line_start_)) continue;
      const std::string_view rest = std::string_view(text_).substr(i, wanted.size());
      if (rest == wanted) found = static_cast<int>(k);
      may_begin = may_begin || std::string_view(wanted).starts_with(rest);
    }
    if (found || (may_begin && !closed_)) break;
    line_start_ = text_[i] == '\n' || (line_start_ && is_space(text_[i]));
  }
  consume(i - begin);
  if (i > begin) sink(std::string_view(text_).substr(begin, i - begin));
  if (found) consume(all[static_cast<size_t>(*found)].text.size());
  if (!found && closed_) return -1;
  return found;
}

std::optional<bool> ReplyReader::scan_now(JsonScanner& scan, const Sink& sink) {
  std::string part;
  JsonScanner::Verdict verdict = JsonScanner::Verdict::more;
  size_t end = at_;
  while (end < text_.size() && verdict == JsonScanner::Verdict::more) {
    verdict = scan.add(text_[end], part);
    if (verdict == JsonScanner::Verdict::more || verdict == JsonScanner::Verdict::last) ++end;
  }
  consume(end - at_);
  if (!part.empty()) sink(part);
  if (verdict != JsonScanner::Verdict::more) return verdict != JsonScanner::Verdict::bad;
  if (closed_) return scan.could_end();
  return std::nullopt;
}

void ReplyReader::append(std::vector<ReplyPiece>& to, ReplyPiece piece) {
  if (!to.empty() && to.back().kind == piece.kind && to.back().call == piece.call &&
      piece.kind != ReplyPiece::Kind::call) {
    to.back().text += piece.text;
  } else {
    to.push_back(std::move(piece));
  }
}

void ReplyReader::put(ReplyPiece::Kind kind, Edges& edges, std::string_view text, bool trim_start) {
  for (const char c : text) {
    if (c != kSpecialMark) edges.held += c;
  }
  if (!edges.begun && trim_start) edges.held.erase(0, edges.held.find_first_not_of(kSpace));
  const size_t last = edges.held.find_last_not_of(kSpace);
  if (last == std::string::npos || done_) return;
  append(pieces_, {kind, -1, edges.held.substr(0, last + 1), {}});
  edges.held.erase(0, last + 1);
  edges.begun = true;
}

void ReplyReader::content(std::string_view text) {
  put(ReplyPiece::Kind::content, content_, text, calls_ > 0 || thought_);
}

void ReplyReader::reasoning(std::string_view text) { put(ReplyPiece::Kind::reasoning, reasoning_, text, true); }

/// The next part of the reasoning, if there is one, begins on a line of its own.
void ReplyReader::end_reasoning() {
  reasoning_.held = reasoning_.begun ? "\n" : "";
  thinking_ = false;
  line_start_ = true;
}

void ReplyReader::begin_attempt(std::string_view start) {
  attempting_ = true;
  line_start_ = false;
  raw_ = start;
}

void ReplyReader::end_attempt() {
  attempting_ = false;
  raw_.clear();
}

void ReplyReader::abandon() {
  attempting_ = false;
  draft_.clear();
  const bool announced = std::exchange(announced_, false);
  if (announced) ++calls_;
  content(std::exchange(raw_, {}));
  if (announced) done_ = options_.one_call;
}

void ReplyReader::begin_call(std::string name, std::string id) {
  if (done_) return;
  draft_.push_back({ReplyPiece::Kind::call, calls_, std::move(name), std::move(id)});
  if (!options_.eager) return;
  pieces_.push_back(std::move(draft_.back()));
  draft_.clear();
  raw_.clear();
  announced_ = true;
}

void ReplyReader::arguments(std::string_view text) {
  if (done_) return;
  append(announced_ ? pieces_ : draft_, {ReplyPiece::Kind::arguments, calls_, std::string(text), {}});
  if (announced_) raw_.clear();
}

void ReplyReader::argument_text(std::string_view text) {
  std::string quoted;
  append_json_string(quoted, text);
  arguments(std::string_view(quoted).substr(1, quoted.size() - 2));
}

void ReplyReader::end_call() {
  if (done_) return;
  for (ReplyPiece& piece : draft_) pieces_.push_back(std::move(piece));
  draft_.clear();
  raw_.clear();
  announced_ = false;
  line_start_ = true;
  ++calls_;
  done_ = options_.one_call;
}

void ReplyReader::call(std::string name, std::string_view all_arguments, std::string id) {
  begin_call(std::move(name), std::move(id));
  arguments(all_arguments);
  end_call();
}

}  // namespace quern
