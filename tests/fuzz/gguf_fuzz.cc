// GGUF: parse any bytes, then translate and read all that a model load would read, and convert a row of each tensor.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/gguf.h"
#include "checkpoint/gguf_architecture.h"
#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/source.h"
#include "formats/list.h"

namespace {

unsigned convert_row(const quern::StoredTensor& tensor) {
  constexpr int64_t most_cols = 1 << 16;
  const quern::Scheme* scheme = quern::find_scheme(tensor.type);
  const int64_t cols = tensor.shape.back();
  if (scheme == nullptr || cols > most_cols) return 0;
  const quern::FormatSizes sizes = quern::format_info(scheme->format);
  const auto groups = static_cast<size_t>((cols + sizes.group - 1) / sizes.group);
  std::vector<std::byte> data(groups * static_cast<size_t>(sizes.data_bytes));
  std::vector<std::byte> scales(groups * static_cast<size_t>(sizes.scale_bytes));
  scheme->convert_row(tensor.bytes.data(), cols, data.data(), scales.data());
  return static_cast<unsigned>(data.front());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto gguf = quern::Gguf::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
  if (!gguf.ok()) return 0;
  unsigned sum = 0;
  for (const quern::StoredTensor& tensor : gguf->tensors()) {
    if (!tensor.bytes.empty())
      sum += static_cast<unsigned>(tensor.bytes.front()) + static_cast<unsigned>(tensor.bytes.back());
    sum += convert_row(tensor);
    sum +=
        static_cast<unsigned>(quern::hugging_face_name(tensor.name, *quern::find_gguf_architecture("gemma3")).size());
  }
  const auto config = quern::gguf_config(*gguf);
  const auto generation = quern::gguf_generation_config(*gguf, 100);
  const auto vocabulary = quern::gguf_vocabulary(*gguf);
  volatile unsigned sink = sum;
  static_cast<void>(sink);
  return 0;
}
