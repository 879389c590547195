// tekken.json, or vocab.json, a line with a class, and merges.txt: any bytes are refused or make a tokenizer whose ids
// are its own.
#include <cstddef>
#include <cstdint>

#include "tokenizer_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) {
    quern::check_tokenizer(quern::Tokenizer::from_tekken(text));
    return 0;
  }
  const size_t next = std::min(size, text.find('\n', end + 1));
  quern::Json config;
  config.set("tokenizer_class", text.substr(end + 1, next - end - 1));
  quern::check_tokenizer(
      quern::Tokenizer::from_merges(text.substr(0, end), text.substr(std::min(size, next + 1)), config));
  return 0;
}
