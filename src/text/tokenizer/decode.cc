#include "text/tokenizer/decode.h"

#include <fmt/format.h>
#include <optional>

#include "text/tokenizer/byte_alphabet.h"

namespace quern {

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
  const auto refuse = [&type](std::string_view why) {
    return Error{fmt::format("tokenizer.json: decoder \"{}\" {}is not supported", type, why)};
  };
  if (type == "Sequence") {
    const Json* list = json.find("decoders");
    if (list == nullptr || !list->is_array()) return Error{"tokenizer.json: decoder Sequence lacks \"decoders\""};
    for (const Json& item : list->items()) TRY(add(item));
  } else if (type == "ByteLevel") {
    byte_level_ = true;
  } else if (type == "ByteFallback") {
    byte_fallback_ = true;
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Replace") {
    const Json* pattern = json.find("pattern");
    const std::optional<std::string> from = pattern != nullptr ? pattern->string("String") : std::nullopt;
    if (!from || from->empty() || fused_) return refuse("with a regular expression or after Fuse ");
    replacements_.push_back({*from, json.string("content").value_or("")});
  } else if (type == "Metaspace") {
    replacements_.push_back({json.string("replacement").value_or("\u2581"), " "});
    const bool legacy = json.boolean("add_prefix_space").value_or(true);
    strips_leading_space_ = json.string("prepend_scheme").value_or(legacy ? "always" : "never") != "never";
  } else if (type == "Strip") {
    const bool leading_space = json.string("content") == " " && json.integer("start").value_or(0) <= 1 &&
                               json.integer("stop").value_or(0) == 0;
    if (!fused_ || !leading_space) return refuse("of other than one leading space after Fuse ");
    strips_leading_space_ = json.integer("start").value_or(0) == 1;
  } else {
    return refuse("");
  }
  return {};
}

void TokenDecoder::append(std::string& out, std::string_view token) const {
  out += separator_;
  if (byte_level_) {
    if (!append_as_bytes(out, token)) out += token;
    return;
  }
  if (const int byte = byte_fallback_ ? byte_of_token(token) : -1; byte >= 0) {
    out += static_cast<char>(byte);
    return;
  }
  const size_t start = out.size();
  out += token;
  for (const Replacement& replacement : replacements_) {
    for (size_t at = out.find(replacement.from, start); at != std::string::npos;
         at = out.find(replacement.from, at + replacement.to.size())) {
      out.replace(at, replacement.from.size(), replacement.to);
    }
  }
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
