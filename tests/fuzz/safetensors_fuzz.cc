// Safetensors: parse any bytes and touch the ends of every tensor.
#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = quern::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz.safetensors");
  if (!tensors.ok()) return 0;
  unsigned sum = 0;
  for (const quern::StoredTensor& tensor : *tensors) {
    if (!tensor.bytes.empty())
      sum += static_cast<unsigned>(tensor.bytes.front()) + static_cast<unsigned>(tensor.bytes.back());
  }
  volatile unsigned sink = sum;
  static_cast<void>(sink);
  return 0;
}
