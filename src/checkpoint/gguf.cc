#include "checkpoint/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "checkpoint/wording.h"
#include "formats/words.h"

namespace quern {
namespace {

constexpr std::string_view changed = "changed while the file was read";

uint64_t load_u64(const std::byte* p) { return uint64_t{load_u32(p)} | uint64_t{load_u32(p + 4)} << 32; }

bool is_integer(GgufType type) {
  return type == GgufType::u8 || type == GgufType::i8 || type == GgufType::u16 || type == GgufType::i16 ||
         type == GgufType::u32 || type == GgufType::i32 || type == GgufType::u64 || type == GgufType::i64;
}

/// Nothing when the value is beyond int64.
std::optional<int64_t> load_integer(GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::u8:
    case GgufType::boolean: return static_cast<uint8_t>(*p);
    case GgufType::i8: return static_cast<int8_t>(*p);
    case GgufType::u16: return static_cast<uint16_t>(load_u16(p));
    case GgufType::i16: return static_cast<int16_t>(load_u16(p));
    case GgufType::u32: return load_u32(p);
    case GgufType::i32: return static_cast<int32_t>(load_u32(p));
    case GgufType::i64: return static_cast<int64_t>(load_u64(p));
    case GgufType::u64: {
      const uint64_t value = load_u64(p);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default: return std::nullopt;
  }
}

std::string type_name(const GgufValue& value) {
  static constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                               "bool", "string", "array", "u64", "i64", "f64"};
  const std::string_view name = names[static_cast<size_t>(value.type)];
  return value.is_array ? fmt::format("an array of {}", name) : fmt::format("of type {}", name);
}

/// The first string of `bytes`. Its length was checked when the file was parsed, but the file may have changed since.
std::optional<std::string> load_string(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) return std::nullopt;
  const uint64_t length = load_u64(bytes.data());
  if (length > bytes.size() - 8) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length));
}

}  // namespace

size_t gguf_element_size(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    default: return 8;
  }
}

Status Gguf::add_tensors(Gguf&& part) {
  for (StoredTensor& tensor : part.tensors_) {
    if (by_name_.contains(tensor.name)) {
      return Error{fmt::format("{}: tensor {} is in another part too", part.path_, quoted(tensor.name))};
    }
    tensors_.push_back(std::move(tensor));
  }
  by_name_.clear();  // names may have moved
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  return {};
}

std::vector<std::string_view> Gguf::keys() const {
  std::vector<std::string_view> all;
  for (const auto& [key, value] : values_) all.push_back(key);
  std::sort(all.begin(), all.end());
  return all;
}

const StoredTensor* Gguf::find_tensor(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Error Gguf::refuse(std::string_view key, std::string_view why) const {
  return Error{fmt::format("{}: key {} {}", path_, quoted(key), why)};
}

Error Gguf::wrong_type(std::string_view key, const GgufValue& value, std::string_view expected) const {
  return refuse(key, fmt::format("is {}, expected {}", type_name(value), expected));
}

Result<std::optional<int64_t>> Gguf::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (value->is_array || !is_integer(value->type)) return wrong_type(key, *value, "an integer");
  const std::optional<int64_t> number = load_integer(value->type, value->bytes.data());
  if (!number) return refuse(key, "is larger than any 64-bit signed integer");
  return number;
}

Result<std::optional<double>> Gguf::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_array && is_integer(value->type)) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> whole, integer(key));
    return std::optional(static_cast<double>(*whole));
  }
  if (value->is_array || (value->type != GgufType::f32 && value->type != GgufType::f64)) {
    return wrong_type(key, *value, "a number");
  }
  double number = 0;
  if (value->type == GgufType::f32) {
    number = double{std::bit_cast<float>(load_u32(value->bytes.data()))};
  } else {
    number = std::bit_cast<double>(load_u64(value->bytes.data()));
  }
  if (!std::isfinite(number)) return refuse(key, "is not a finite number");
  return std::optional(number);
}

Result<std::optional<bool>> Gguf::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->is_array || value->type != GgufType::boolean) return wrong_type(key, *value, "a boolean");
  return std::optional(value->bytes[0] != std::byte{0});
}

Result<std::optional<std::string>> Gguf::string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_array || value->type != GgufType::string) return wrong_type(key, *value, "a string");
  std::optional<std::string> text = load_string(value->bytes);
  if (!text) return refuse(key, changed);
  return text;
}

Result<std::optional<std::vector<int64_t>>> Gguf::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  if (!is_integer(value->type) && value->type != GgufType::boolean) {
    return wrong_type(key, *value, "integers or booleans");
  }
  std::vector<int64_t> numbers;
  numbers.reserve(static_cast<size_t>(value->count));
  const size_t size = gguf_element_size(value->type);
  for (int64_t i = 0; i < value->count; ++i) {
    const auto number = load_integer(value->type, value->bytes.data() + static_cast<size_t>(i) * size);
    if (!number) return refuse(key, fmt::format("holds a value beyond 64 bits at place {}", i));
    numbers.push_back(*number);
  }
  return std::optional(std::move(numbers));
}

Result<std::optional<std::vector<float>>> Gguf::floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<float>>();
  if (!value->is_array || value->type != GgufType::f32) return wrong_type(key, *value, "an array of f32");
  std::vector<float> numbers(static_cast<size_t>(value->count));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = std::bit_cast<float>(load_u32(value->bytes.data() + 4 * i));
    if (!std::isfinite(numbers[i])) return refuse(key, fmt::format("holds a value that is not finite at place {}", i));
  }
  return std::optional(std::move(numbers));
}

Result<std::optional<std::vector<std::string>>> Gguf::strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<std::string>>();
  if (!value->is_array || value->type != GgufType::string) return wrong_type(key, *value, "an array of strings");
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(value->count));
  std::span<const std::byte> rest = value->bytes;
  for (int64_t i = 0; i < value->count; ++i) {
    std::optional<std::string> text = load_string(rest);
    if (!text) return refuse(key, changed);
    rest = rest.subspan(8 + text->size());
    texts.push_back(*std::move(text));
  }
  return std::optional(std::move(texts));
}

}  // namespace quern
