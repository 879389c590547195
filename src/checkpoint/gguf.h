// Gguf: the parsed header of one GGUF file: metadata by key and type, and the table of tensors. A view of bytes that
// somebody else owns; immutable, any thread. Every size is checked against the file before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "checkpoint/source.h"

namespace quern {

enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// Bytes of one element; of a string, those of its length.
size_t gguf_element_size(GgufType type);

struct GgufValue {
  GgufType type = GgufType::u8;  // of the elements, if `is_array`
  bool is_array = false;
  int64_t count = 1;                 // elements
  std::span<const std::byte> bytes;  // as in the file: fixed-size elements, or strings with their lengths before them
};

class Gguf {
 public:
  Gguf(Gguf&&) = default;
  Gguf& operator=(Gguf&&) = default;

  /// `path` is for messages.
  static Result<Gguf> parse(std::span<const std::byte> file, std::string path);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  size_t metadata_count() const { return values_.size(); }
  /// With the file's own names, in the file's order; shapes outermost first.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find_tensor(std::string_view name) const;
  /// Takes over the tensors of another part of the same model; refuses names that are there already.
  Status add_tensors(Gguf&& part);

  /// Of the metadata, sorted.
  std::vector<std::string_view> keys() const;
  bool has(std::string_view key) const { return values_.contains(key); }
  /// Values by type: nothing when the key is absent, an error that names the key when its type is another one.
  /// `integer` takes every integer type, `number` every number that is finite.
  Result<std::optional<int64_t>> integer(std::string_view key) const;
  Result<std::optional<double>> number(std::string_view key) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string>> string(std::string_view key) const;
  /// Arrays. A single integer or boolean passes for an array of one where a key may be either (per layer or for all).
  Result<std::optional<std::vector<int64_t>>> integers(std::string_view key) const;
  Result<std::optional<std::vector<float>>> floats(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> strings(std::string_view key) const;

  Error refuse(std::string_view key, std::string_view why) const;

 private:
  friend class GgufReader;

  Gguf() = default;
  const GgufValue* find(std::string_view key) const;
  Error wrong_type(std::string_view key, const GgufValue& value, std::string_view expected) const;

  std::string path_;
  uint32_t version_ = 0;
  std::unordered_map<std::string_view, GgufValue> values_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace quern
