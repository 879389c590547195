#include "text/tokenizer/decode.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "text/pattern/unicode.h"
#include "text/subword/byte_alphabet.h"

namespace quern {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

void replace_matches(std::string& text, const Pattern& pattern, std::string_view content) {
  std::vector<Span> matches;
  if (!pattern.find_all(text, matches).ok()) return;
  for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
    text.replace(match->begin, match->end - match->begin, content);
  }
}

/// Takes the spaces away that English does not have.
void clean(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> changes[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : changes) replace_all(text, from, to);
}

/// Takes up to `most` times `part` away from one end.
void strip(std::string& text, std::string_view part, int64_t most, bool at_end) {
  for (; most > 0 && !part.empty() && (at_end ? text.ends_with(part) : text.starts_with(part)); --most) {
    text.erase(at_end ? text.size() - part.size() : 0, part.size());
  }
}

/// Joins runs of byte tokens; a run that is no UTF-8 becomes one U+FFFD per byte.
void join_bytes(std::vector<std::string>& tokens) {
  std::vector<std::string> joined;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    const size_t count = run.size();
    if (!is_utf8(run)) {
      run.clear();
      for (size_t i = 0; i < count; ++i) run += replacement_character;
    }
    joined.push_back(std::exchange(run, {}));
  };
  for (std::string& token : tokens) {
    const int byte = byte_of_token(token);
    if (byte >= 0) {
      run += static_cast<char>(byte);
      continue;
    }
    flush();
    joined.push_back(std::move(token));
  }
  flush();
  tokens = std::move(joined);
}

void fuse(std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.assign(1, std::move(all));
}

}  // namespace

Result<TokenDecoder> TokenDecoder::from_json(const Json* json) {
  TokenDecoder decoder;
  if (json != nullptr && !json->is_null()) {
    TRY(decoder.add(*json));
  } else {
    decoder.separator_ = " ";
    decoder.strips_leading_space_ = true;
  }
  return decoder;
}

Status TokenDecoder::add(const Json& json) {
  const std::string type = json.string("type").value_or("");
  if (type == "Sequence") {
    const Json* list = json.find("decoders");
    if (list == nullptr || !list->is_array()) return Error{"tokenizer.json: decoder Sequence lacks \"decoders\""};
    for (const Json& item : list->items()) TRY(add(item));
    return {};
  }
  ASSIGN_OR_RETURN(Step step, read(type, json));
  note(step);
  steps_.push_back(std::move(step));
  return {};
}

Result<TokenDecoder::Step> TokenDecoder::read(const std::string& type, const Json& json) const {
  if (type == "ByteLevel") return Step{.kind = Kind::byte_level};
  if (type == "ByteFallback") return Step{.kind = Kind::byte_fallback};
  if (type == "Fuse") return Step{.kind = Kind::fuse};
  Step step{.kind = Kind::replace};
  if (type == "Replace") {
    ASSIGN_OR_RETURN(step.pattern, Pattern::from_json(json.find("pattern")));
    step.content = json.string("content").value_or("");
  } else if (type == "Metaspace") {
    step.kind = Kind::metaspace;
    step.text = json.string("replacement").value_or("\u2581");
    const bool legacy = json.boolean("add_prefix_space").value_or(true);
    step.drop_first = json.string("prepend_scheme").value_or(legacy ? "always" : "never") != "never";
  } else if (type == "Strip") {
    step.kind = Kind::strip;
    step.text = json.string("content").value_or(" ");
    step.start = json.integer("start").value_or(0);
    step.stop = json.integer("stop").value_or(0);
  } else if (type == "WordPiece") {
    step.kind = Kind::word_piece;
    step.text = json.string("prefix").value_or("##");
    step.clean = json.boolean("cleanup").value_or(true);
  } else if (type == "BPEDecoder") {
    step.kind = Kind::word_end;
    step.text = json.string("suffix").value_or("</w>");
  } else if (type == "CTC") {
    step.kind = Kind::ctc;
    step.text = json.string("pad_token").value_or("<pad>");
    step.content = json.string("word_delimiter_token").value_or("|");
    step.clean = json.boolean("cleanup").value_or(true);
  } else {
    return Error{fmt::format("tokenizer.json: decoder \"{}\" is not supported", type)};
  }
  return step;
}

void TokenDecoder::note(const Step& step) {
  const bool leading_space = step.kind == Kind::strip && step.text == " " && step.start <= 1 && step.stop == 0;
  if (step.kind == Kind::word_end || step.kind == Kind::ctc) by_token_ = false;
  if ((fused_ || byte_level_) && step.kind != Kind::fuse && !leading_space) by_token_ = false;
  if (fused_ && leading_space) strips_leading_space_ = step.start == 1;
  byte_level_ = byte_level_ || step.kind == Kind::byte_level;
  byte_fallback_ = byte_fallback_ || step.kind == Kind::byte_fallback;
  fused_ = fused_ || step.kind == Kind::fuse;
}

void TokenDecoder::append_first(std::string& out, std::string_view token) const {
  const size_t begin = out.size();
  append(out, token, true);
  if (strips_leading_space_ && out.size() > begin && out[begin] == ' ') out.erase(begin, 1);
}

void TokenDecoder::append(std::string& out, std::string_view token, bool first) const {
  out += separator_;
  if (byte_level_) {
    if (!append_as_bytes(out, token)) out += token;
    return;
  }
  if (const int byte = byte_fallback_ ? byte_of_token(token) : -1; byte >= 0) {
    out += static_cast<char>(byte);
    return;
  }
  std::string changed(token);
  for (const Step& step : steps_) {
    if (step.kind == Kind::fuse) break;
    change(step, changed, first);
  }
  out += changed;
}

/// The steps that look at one token.
void TokenDecoder::change(const Step& step, std::string& token, bool first) {
  switch (step.kind) {
    case Kind::replace: return replace_matches(token, *step.pattern, step.content);
    case Kind::metaspace: return replace_all(token, step.text, first && step.drop_first ? "" : " ");
    case Kind::strip: strip(token, step.text, step.start, false); return strip(token, step.text, step.stop, true);
    case Kind::word_piece:
      if (!first && !token.starts_with(step.text)) {
        token.insert(0, " ");
      } else if (!first) {
        token.erase(0, step.text.size());
      }
      if (step.clean) clean(token);
      return;
    case Kind::byte_level:
    case Kind::byte_fallback:
    case Kind::fuse:
    case Kind::word_end:
    case Kind::ctc: return;
  }
}

void TokenDecoder::change_all(const Step& step, std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) change(step, tokens[i], i == 0);
  if (step.kind == Kind::byte_fallback) join_bytes(tokens);
  if (step.kind == Kind::fuse) fuse(tokens);
  if (step.kind == Kind::byte_level) {
    for (std::string& token : tokens) {
      std::string bytes;
      if (append_as_bytes(bytes, token)) token = std::move(bytes);
    }
    fuse(tokens);
    tokens[0] = repair_utf8(tokens[0]);
  }
  if (step.kind == Kind::word_end) {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], step.text, i + 1 < tokens.size() ? " " : "");
  }
  if (step.kind != Kind::ctc) return;
  const auto repeated = std::ranges::unique(tokens);
  tokens.erase(repeated.begin(), repeated.end());
  for (std::string& token : tokens) {
    replace_all(token, step.text, "");
    if (step.clean) clean(token);
    if (step.clean) replace_all(token, step.content, " ");
  }
  std::erase(tokens, std::string());
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) change_all(step, tokens);
  fuse(tokens);
  return std::move(tokens[0]);
}

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'A' && c <= 'F')) return -1;
    byte = byte * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return byte;
}

}  // namespace quern
