// Writers of small GGUF and safetensors files, right or wrong as a test wants them. Only for tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/testing.h"

namespace quern::testing {

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// As GGUF spells a string. `length` replaces the true one.
inline std::string gguf_string(std::string_view text, std::optional<uint64_t> length = {}) {
  return raw(length.value_or(text.size())) + std::string(text);
}

/// A GGUF file, built piece by piece. The counts of the header are right unless set.
class GgufWriter {
 public:
  uint32_t version = 3;
  std::string magic = "GGUF";
  std::optional<uint64_t> tensor_count, pair_count;
  uint64_t alignment = 32;

  GgufWriter& pair(std::string_view key, uint32_t type, std::string_view value) {
    return raw_pair(gguf_string(key) + raw(type) + std::string(value));
  }
  GgufWriter& raw_pair(std::string_view bytes) {
    pairs_ += bytes;
    ++pairs_written_;
    return *this;
  }
  GgufWriter& u8(std::string_view key, uint8_t value) { return pair(key, 0, raw(value)); }
  GgufWriter& u32(std::string_view key, uint32_t value) { return pair(key, 4, raw(value)); }
  GgufWriter& f32(std::string_view key, float value) { return pair(key, 6, raw(value)); }
  GgufWriter& boolean(std::string_view key, bool value) { return pair(key, 7, raw(value)); }
  GgufWriter& string(std::string_view key, std::string_view value) { return pair(key, 8, gguf_string(value)); }
  template <typename T>
  GgufWriter& array(std::string_view key, uint32_t type, const std::vector<T>& values) {
    std::string bytes = raw(type) + raw(uint64_t{values.size()});
    for (const T value : values) bytes += raw(value);
    return pair(key, 9, bytes);
  }
  GgufWriter& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = raw(uint32_t{8}) + raw(uint64_t{values.size()});
    for (const std::string& value : values) bytes += gguf_string(value);
    return pair(key, 9, bytes);
  }

  /// Dimensions as GGUF has them, the contiguous one first. `offset` replaces the next free one.
  GgufWriter& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, std::string_view data,
                     std::optional<uint64_t> offset = {}) {
    std::string entry = gguf_string(name) + raw(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) entry += raw(dim);
    return raw_tensor(entry + raw(type) + raw(offset.value_or(data_.size())), data);
  }
  GgufWriter& raw_tensor(std::string_view entry, std::string_view data) {
    tensors_ += entry;
    data_ += data;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    ++tensors_written_;
    return *this;
  }
  /// An f32 tensor of zeros.
  GgufWriter& zeros(std::string_view name, const std::vector<uint64_t>& dims) {
    uint64_t count = 4;
    for (const uint64_t dim : dims) count *= dim;
    return tensor(name, dims, 0, std::string(count, '\0'));
  }

  std::string bytes() const {
    std::string out = magic + raw(version) + raw(tensor_count.value_or(tensors_written_)) +
                      raw(pair_count.value_or(pairs_written_)) + pairs_ + tensors_;
    if (!data_.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  std::string pairs_, tensors_, data_;
  uint64_t pairs_written_ = 0, tensors_written_ = 0;
};

/// A safetensors file. `length` replaces the true length of the header.
inline std::string safetensors(std::string_view header, std::string_view data, std::optional<uint64_t> length = {}) {
  return raw(length.value_or(header.size())) + std::string(header) + std::string(data);
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// Blocks of a stored type, and what the `gguf` package makes of them (tools/make_quant_cases.py).
struct QuantCase {
  std::string type;
  int64_t block_values = 0, block_bytes = 0;
  std::vector<std::byte> stored;
  std::vector<float> floats;
};

inline std::vector<QuantCase> quant_cases(const std::string& source_dir) {
  struct Header {
    char type[16];
    uint32_t block_values, block_bytes, blocks;
  };
  const std::string file = read_file(source_dir + "/src/checkpoint/testdata/quant_cases.bin").value();
  std::vector<QuantCase> cases;
  for (size_t at = 0; at < file.size();) {
    Header header;
    std::memcpy(&header, file.data() + at, sizeof header);
    at += sizeof header;
    QuantCase one{std::string(header.type, strnlen(header.type, sizeof header.type)), header.block_values,
                  header.block_bytes, std::vector<std::byte>(size_t{header.block_bytes} * header.blocks),
                  std::vector<float>(size_t{header.block_values} * header.blocks)};
    CHECK(at + one.stored.size() + 4 * one.floats.size() <= file.size());
    std::memcpy(one.stored.data(), file.data() + at, one.stored.size());
    at += one.stored.size();
    std::memcpy(one.floats.data(), file.data() + at, 4 * one.floats.size());
    at += 4 * one.floats.size();
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace quern::testing
