// Reads the vocabulary of a GGUF file, for tests only: `text` may not include `checkpoint`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace quern {

/// Trusts its input as far as the bounds of `file`; anything odd ends the reading.
class GgufVocabularyFile {
 public:
  explicit GgufVocabularyFile(std::string_view file) : file_(file) {}

  GgufVocabulary read() {
    if (number<uint32_t>() != 0x46554747) return {};
    number<uint32_t>();
    number<uint64_t>();
    const auto entries = number<uint64_t>();
    for (uint64_t i = 0; i < entries && at_ < file_.size(); ++i) {
      const std::string_view key = string();
      value(key, number<uint32_t>());
    }
    return std::move(vocabulary_);
  }

 private:
  template <typename T>
  T number() {
    T value{};
    if (file_.size() - at_ < sizeof value) {
      at_ = file_.size();
      return value;
    }
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string_view string() {
    const auto length = number<uint64_t>();
    const std::string_view text = file_.substr(at_).substr(0, length);
    at_ += text.size();
    return text;
  }

  static size_t width(uint32_t type) {
    constexpr size_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < 13 ? widths[type] : 0;
  }

  void value(std::string_view key, uint32_t type) {
    constexpr uint32_t string_type = 8;
    constexpr uint32_t array_type = 9;
    if (type == string_type) {
      text_value(key, string());
    } else if (type == array_type) {
      const auto item = number<uint32_t>();
      const auto count = number<uint64_t>();
      item == string_type ? strings(key, count) : numbers(key, width(item), count);
    } else {
      uint64_t bits = 0;
      std::memcpy(&bits, file_.data() + at_, std::min(width(type), file_.size() - at_));
      at_ += std::min(width(type), file_.size() - at_);
      scalar(key, bits);
    }
  }

  void text_value(std::string_view key, std::string_view text) {
    if (key == "tokenizer.ggml.model") vocabulary_.model = text;
    if (key == "tokenizer.ggml.pre") vocabulary_.pre = text;
  }

  void strings(std::string_view key, uint64_t count) {
    std::vector<std::string> list;
    for (uint64_t i = 0; i < count && at_ < file_.size(); ++i) list.emplace_back(string());
    if (key == "tokenizer.ggml.tokens") vocabulary_.tokens = std::move(list);
    if (key == "tokenizer.ggml.merges") vocabulary_.merges = std::move(list);
  }

  void numbers(std::string_view key, size_t width, uint64_t count) {
    const std::string_view bytes = file_.substr(at_).substr(0, width * count);
    at_ += bytes.size();
    const auto copy = [bytes](auto& list) {
      list.resize(bytes.size() / 4);
      if (!list.empty()) std::memcpy(list.data(), bytes.data(), list.size() * 4);
    };
    if (key == "tokenizer.ggml.precompiled_charsmap") vocabulary_.charsmap = bytes;
    if (key == "tokenizer.ggml.scores") copy(vocabulary_.scores);
    if (key == "tokenizer.ggml.token_type") copy(vocabulary_.types);
  }

  void scalar(std::string_view key, uint64_t bits) {
    const auto id = static_cast<int32_t>(bits);
    if (key == "tokenizer.ggml.bos_token_id") vocabulary_.bos = id;
    if (key == "tokenizer.ggml.eos_token_id") vocabulary_.eos = id;
    if (key == "tokenizer.ggml.eot_token_id") vocabulary_.eot = id;
    if (key == "tokenizer.ggml.unknown_token_id") vocabulary_.unknown = id;
    if (key == "tokenizer.ggml.padding_token_id") vocabulary_.padding = id;
    if (key == "tokenizer.ggml.seperator_token_id") vocabulary_.separator = id;
    if (key == "tokenizer.ggml.cls_token_id") vocabulary_.cls = id;
    if (key == "tokenizer.ggml.mask_token_id") vocabulary_.mask = id;
    if (key == "tokenizer.ggml.remove_extra_whitespaces") vocabulary_.remove_extra_spaces = bits != 0;
    if (key == "tokenizer.ggml.add_bos_token") vocabulary_.add_bos = bits != 0;
    if (key == "tokenizer.ggml.add_eos_token") vocabulary_.add_eos = bits != 0;
    if (key == "tokenizer.ggml.add_space_prefix") vocabulary_.add_space_prefix = bits != 0;
  }

  std::string_view file_;
  size_t at_ = 0;
  GgufVocabulary vocabulary_;
};

}  // namespace quern
