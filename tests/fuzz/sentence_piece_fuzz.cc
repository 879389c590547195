// tokenizer.model: any bytes are refused or make a tokenizer whose ids are its own.
#include <cstddef>
#include <cstdint>

#include "tokenizer_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  quern::check_tokenizer(quern::Tokenizer::from_sentence_piece({reinterpret_cast<const char*>(bytes), size}, {}));
  return 0;
}
