// The vocabulary of a GGUF file: any one is refused or makes a tokenizer whose ids are its own.
#include <cstddef>
#include <cstdint>

#include "text/tokenizer/gguf_vocabulary_file.h"
#include "tokenizer_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(bytes), size);
  quern::check_tokenizer(quern::Tokenizer::from_gguf(quern::GgufVocabularyFile(file).read()));
  return 0;
}
