// GGUF: parse any bytes, then translate and read all that a model load would read.
#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/gguf.h"
#include "checkpoint/gguf_architecture.h"
#include "checkpoint/gguf_checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto gguf = quern::Gguf::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
  if (!gguf.ok()) return 0;
  unsigned sum = 0;
  for (const quern::StoredTensor& tensor : gguf->tensors()) {
    if (!tensor.bytes.empty())
      sum += static_cast<unsigned>(tensor.bytes.front()) + static_cast<unsigned>(tensor.bytes.back());
    sum += static_cast<unsigned>(quern::hugging_face_name(tensor.name, *quern::find_gguf_architecture("gemma3")).size());
  }
  const auto config = quern::gguf_config(*gguf);
  const auto generation = quern::gguf_generation_config(*gguf, 100);
  const auto vocabulary = quern::gguf_vocabulary(*gguf);
  volatile unsigned sink = sum;
  static_cast<void>(sink);
  return 0;
}
