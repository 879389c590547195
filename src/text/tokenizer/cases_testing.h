// What tests of tokenizers share: their files, and cases as tools/make_tokenizer_cases.py writes them.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace quern::tokenizer_cases {

inline std::string test_file(const std::string& name) {
  const Result<std::string> text = read_file(QUERN_SOURCE_DIR "/src/text/testdata/" + name);
  EXPECT_TRUE(text.ok()) << name;
  return text.ok() ? *text : "";
}

inline std::vector<int32_t> ids_of(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& item : list.items()) ids.push_back(static_cast<int32_t>(item.as_integer()));
  return ids;
}

inline std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.ok()) << (ids.ok() ? "" : ids.error().message);
  return ids.ok() ? *ids : std::vector<int32_t>();
}

inline void expect_cases(const Tokenizer& tokenizer, const Json& cases) {
  for (const Json& item : cases.items()) {
    const std::string& text = item.find("text")->as_string();
    const Json* ids = item.find("ids");
    const auto expected = [&](const char* name) { return ids_of(item.has(name) ? *item.find(name) : *ids); };
    const std::vector<int32_t> special = expected("special");
    const std::string decoded = item.string("decoded").value_or(text);

    EXPECT_EQ(encode(tokenizer, text, {.add_special = false, .parse_special = true}), ids_of(*ids)) << text;
    EXPECT_EQ(encode(tokenizer, text, {.add_special = true, .parse_special = true}), special) << text;
    EXPECT_EQ(encode(tokenizer, text, {.add_special = false}), expected("plain")) << text;
    EXPECT_EQ(tokenizer.decode(special, true), decoded) << text;
    EXPECT_EQ(tokenizer.decode(special, false), item.string("decoded_special").value_or(decoded)) << text;
  }
}

}  // namespace quern::tokenizer_cases
