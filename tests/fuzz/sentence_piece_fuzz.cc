// tokenizer.model: any bytes are refused or make a tokenizer whose ids are its own.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/tokenizer.h"

namespace {

constexpr std::string_view texts[] = {"", "Hello, world 123\n", " \xC3\xA9\xE2\x96\x81<s>ab</s>  \xF0\x9F\x98\x80\xFFz",
                                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const auto made = quern::Tokenizer::from_sentence_piece({reinterpret_cast<const char*>(bytes), size}, {});
  if (!made.ok()) {
    CHECK(!made.error().message.empty());
    return 0;
  }
  const quern::Tokenizer& tokenizer = **made;
  for (const std::string_view text : texts) {
    for (const bool special : {false, true}) {
      const auto ids = tokenizer.encode(text, {.add_special = special, .parse_special = special});
      if (!ids.ok()) continue;
      for (const int32_t id : *ids) CHECK(id >= 0 && id < tokenizer.size());
      tokenizer.decode(*ids, special);
    }
  }
  tokenizer.decode({{-1, 0, tokenizer.size() - 1, tokenizer.size()}}, false);
  return 0;
}
