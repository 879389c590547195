// What every tokenizer that was made of any bytes must keep: its ids are its own, whatever is asked of it.
#pragma once

#include <string_view>

#include "base/check.h"
#include "text/tokenizer.h"

namespace quern {

inline void check_tokenizer(const Result<std::shared_ptr<const Tokenizer>>& made) {
  constexpr std::string_view texts[] = {"", "Hello, world 123\n",
                                        " \xC3\xA9\xE2\x96\x81<s>ab</s>  \xF0\x9F\x98\x80\xFFz",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"};
  if (!made.ok()) {
    CHECK(!made.error().message.empty());
    return;
  }
  const Tokenizer& tokenizer = **made;
  for (const std::string_view text : texts) {
    for (const bool special : {false, true}) {
      const auto ids = tokenizer.encode(text, {.add_special = special, .parse_special = special});
      if (!ids.ok()) continue;
      for (const int32_t id : *ids) CHECK(id >= 0 && id < tokenizer.size());
      tokenizer.decode(*ids, special);
    }
  }
  tokenizer.decode({{-1, 0, tokenizer.size() - 1, tokenizer.size()}}, false);
  tokenizer.token_bytes(tokenizer.size());
  tokenizer.description();
}

}  // namespace quern
