// Parsing of GGUF bytes. Nothing is believed: counts are compared with the bytes that are left before anything is
// allocated, sizes are computed with overflow checks, and every error says at which byte it was seen.
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include "checkpoint/gguf.h"
#include "checkpoint/gguf_types.h"
#include "checkpoint/wording.h"
#include "formats/words.h"

namespace quern {
namespace {

constexpr uint64_t longest_key = 65535;
constexpr uint64_t longest_tensor_name = 63;
constexpr uint64_t most_dims = 4;
constexpr size_t least_pair_bytes = 8 + 1 + 4 + 1;            // key, type, value
constexpr size_t least_tensor_bytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, n_dims, one dimension, type, offset

}  // namespace

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> file, std::string path) : file_(file) { gguf_.path_ = std::move(path); }

  Result<Gguf> read();

 private:
  struct Placed {
    uint64_t offset;
    uint64_t bytes;
    size_t tensor;
  };

  size_t left() const { return file_.size() - at_; }
  Error fail(std::string_view why) const { return Error{fmt::format("{}: {} (at byte {})", gguf_.path_, why, at_)}; }
  Status need(uint64_t bytes, std::string_view what) const {
    if (bytes <= left()) return {};
    return fail(
        fmt::format("{} needs {} bytes, but only {} are left; the file is cut short or wrong", what, bytes, left()));
  }
  Result<uint32_t> read_u32(std::string_view what) {
    TRY(need(4, what));
    at_ += 4;
    return load_u32(file_.data() + at_ - 4);
  }
  Result<uint64_t> read_u64(std::string_view what) {
    ASSIGN_OR_RETURN(const uint64_t low, read_u32(what));
    ASSIGN_OR_RETURN(const uint64_t high, read_u32(what));
    return low | high << 32;
  }
  Result<std::string_view> read_name(std::string_view what, uint64_t longest);
  Result<uint64_t> read_count(std::string_view what, size_t least_bytes);
  Status read_version();
  Status read_pair();
  Status read_value(GgufValue& value);
  Status skip_strings(int64_t count);
  Status read_tensor(Placed& placed);
  Status read_dims(StoredTensor& tensor);
  Result<uint64_t> tensor_bytes(StoredTensor& tensor);
  Result<uint64_t> alignment() const;
  Status place_tensors(std::vector<Placed> placed);
  Error refuse_tensor(std::string_view name, std::string_view why) const {
    return fail(fmt::format("tensor {} {}", quoted(name), why));
  }

  std::span<const std::byte> file_;
  size_t at_ = 0;
  Gguf gguf_;
};

Result<Gguf> GgufReader::read() {
  TRY(read_version());
  ASSIGN_OR_RETURN(const uint64_t tensor_count, read_count("the number of tensors", least_tensor_bytes));
  ASSIGN_OR_RETURN(const uint64_t pair_count, read_count("the number of metadata keys", least_pair_bytes));
  for (uint64_t i = 0; i < pair_count; ++i) TRY(read_pair());
  if (tensor_count > left() / least_tensor_bytes)
    return fail(fmt::format("{} tensors cannot fit the file", tensor_count));
  std::vector<Placed> placed(static_cast<size_t>(tensor_count));
  gguf_.tensors_.reserve(placed.size());  // by_name_ refers to the names
  for (Placed& one : placed) TRY(read_tensor(one));
  TRY(place_tensors(std::move(placed)));
  return std::move(gguf_);
}

Status GgufReader::read_version() {
  if (file_.size() < 4 || std::memcmp(file_.data(), "GGUF", 4) != 0) {
    return fail(fmt::format("is not a GGUF file, it has {} bytes and does not start with GGUF", file_.size()));
  }
  at_ = 4;
  ASSIGN_OR_RETURN(const uint32_t version, read_u32("the version"));
  if (version == 2 || version == 3) {
    gguf_.version_ = version;
    return {};
  }
  at_ = 4;
  if (__builtin_bswap32(version) <= 3 && version != 0) {
    return fail("big-endian GGUF files are not supported; convert it with gguf_convert_endian.py");
  }
  return fail(fmt::format("GGUF version {} is not supported, only 2 and 3 are", version));
}

/// A count in the header, which cannot be more than what fits the bytes behind it.
Result<uint64_t> GgufReader::read_count(std::string_view what, size_t least_bytes) {
  ASSIGN_OR_RETURN(const uint64_t count, read_u64(what));
  if (count > left() / least_bytes) return fail(fmt::format("{} is {}, more than fit the file", what, count));
  return count;
}

Result<std::string_view> GgufReader::read_name(std::string_view what, uint64_t longest) {
  ASSIGN_OR_RETURN(const uint64_t length, read_u64(what));
  if (length == 0 || length > longest)
    return fail(fmt::format("{} has {} bytes, expected 1 to {}", what, length, longest));
  TRY(need(length, what));
  const std::string_view name(reinterpret_cast<const char*>(file_.data()) + at_, static_cast<size_t>(length));
  if (name.find('\0') != std::string_view::npos) return fail(fmt::format("{} holds a NUL character", what));
  at_ += static_cast<size_t>(length);
  return name;
}

Status GgufReader::read_pair() {
  ASSIGN_OR_RETURN(const std::string_view key, read_name("a metadata key", longest_key));
  GgufValue value;
  Status status = read_value(value);
  if (!status.ok()) return Error{fmt::format("{}, key {}", status.error().message, quoted(key))};
  if (!gguf_.values_.emplace(key, value).second) return fail(fmt::format("key {} is there twice", quoted(key)));
  return {};
}

Status GgufReader::read_value(GgufValue& value) {
  const auto read_type = [&]() -> Result<GgufType> {
    ASSIGN_OR_RETURN(const uint32_t type, read_u32("a value's type"));
    if (type > static_cast<uint32_t>(GgufType::f64)) return fail(fmt::format("unknown value type {}", type));
    return static_cast<GgufType>(type);
  };
  ASSIGN_OR_RETURN(value.type, read_type());
  if (value.type == GgufType::array) {
    value.is_array = true;
    ASSIGN_OR_RETURN(value.type, read_type());
    if (value.type == GgufType::array) return fail("arrays of arrays are not supported");
    ASSIGN_OR_RETURN(const uint64_t count, read_count("an array's length", gguf_element_size(value.type)));
    value.count = static_cast<int64_t>(count);
  }
  const size_t begin = at_;
  if (value.type == GgufType::string) {
    TRY(skip_strings(value.count));
  } else {
    const uint64_t bytes = static_cast<uint64_t>(value.count) * gguf_element_size(value.type);
    TRY(need(bytes, "a value"));
    at_ += static_cast<size_t>(bytes);
  }
  value.bytes = file_.subspan(begin, at_ - begin);
  const bool odd = value.type == GgufType::boolean &&
                   std::any_of(value.bytes.begin(), value.bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (odd) return fail("a boolean is neither 0 nor 1");
  return {};
}

/// A vocabulary has some 10^5 strings, and start-up waits for this loop.
Status GgufReader::skip_strings(int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (left() < 8) return need(8, "a string's length");
    const uint64_t length = uint64_t{load_u32(file_.data() + at_)} | uint64_t{load_u32(file_.data() + at_ + 4)} << 32;
    at_ += 8;
    if (length > left()) return need(length, "a string");
    at_ += static_cast<size_t>(length);
  }
  return {};
}

Status GgufReader::read_tensor(Placed& placed) {
  StoredTensor tensor;
  ASSIGN_OR_RETURN(tensor.name, read_name("a tensor's name", longest_tensor_name));
  TRY(read_dims(tensor));
  ASSIGN_OR_RETURN(placed.bytes, tensor_bytes(tensor));
  ASSIGN_OR_RETURN(placed.offset, read_u64("a tensor's offset"));
  placed.tensor = gguf_.tensors_.size();
  gguf_.tensors_.push_back(std::move(tensor));
  const std::string& name = gguf_.tensors_.back().name;
  if (!gguf_.by_name_.emplace(name, placed.tensor).second) return refuse_tensor(name, "is there twice");
  return {};
}

Status GgufReader::read_dims(StoredTensor& tensor) {
  ASSIGN_OR_RETURN(const uint32_t dims, read_u32("a tensor's number of dimensions"));
  if (dims == 0 || dims > most_dims) {
    return refuse_tensor(tensor.name, fmt::format("has {} dimensions, expected 1 to {}", dims, most_dims));
  }
  int64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    ASSIGN_OR_RETURN(const uint64_t size, read_u64("a tensor's dimension"));
    const bool good = size > 0 && size <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) &&
                      !__builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements);
    if (!good) return refuse_tensor(tensor.name, fmt::format("has an impossible dimension {}", size));
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  return {};
}

/// Reads the type; the size of all the tensor's blocks.
Result<uint64_t> GgufReader::tensor_bytes(StoredTensor& tensor) {
  ASSIGN_OR_RETURN(const uint32_t id, read_u32("a tensor's type"));
  const GgufTensorType* const type = find_gguf_type(id);
  if (type == nullptr) return refuse_tensor(tensor.name, unknown_gguf_type(id));
  tensor.type = type->name;
  const int64_t cols = tensor.shape.back();
  if (cols % type->block_values != 0) {
    return refuse_tensor(tensor.name, fmt::format("has rows of {} values, but {} needs a multiple of {}", cols,
                                                  type->name, type->block_values));
  }
  int64_t bytes = cols / type->block_values;
  bool fits = !__builtin_mul_overflow(bytes, type->block_bytes, &bytes);
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i)
    fits = fits && !__builtin_mul_overflow(bytes, tensor.shape[i], &bytes);
  if (!fits) return refuse_tensor(tensor.name, fmt::format("is impossibly large: {}", shape_text(tensor.shape)));
  return static_cast<uint64_t>(bytes);
}

Result<uint64_t> GgufReader::alignment() const {
  constexpr std::string_view key = "general.alignment";
  constexpr int64_t largest = 1 << 20;
  ASSIGN_OR_RETURN(const std::optional<int64_t> stored, gguf_.integer(key));
  const int64_t value = stored.value_or(32);
  const bool power_of_two = value > 0 && (value & (value - 1)) == 0;
  if (!power_of_two || value < 8 || value > largest) {
    return gguf_.refuse(key, fmt::format("is {}, expected a power of two from 8 to {}", value, largest));
  }
  return static_cast<uint64_t>(value);
}

/// Gives the tensors their bytes; each must lie inside the data, aligned and apart from the others.
Status GgufReader::place_tensors(std::vector<Placed> placed) {
  ASSIGN_OR_RETURN(const uint64_t align, alignment());
  const uint64_t begin = (at_ + align - 1) / align * align;
  const uint64_t size = begin < file_.size() ? file_.size() - begin : 0;
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
  uint64_t end = 0;
  for (const Placed& one : placed) {
    StoredTensor& tensor = gguf_.tensors_[one.tensor];
    if (one.offset % align != 0)
      return refuse_tensor(tensor.name, fmt::format("has the unaligned offset {}", one.offset));
    if (one.offset < end) return refuse_tensor(tensor.name, "overlaps another tensor");
    if (one.offset > size || one.bytes > size - one.offset) {
      return refuse_tensor(tensor.name,
                           fmt::format("has {} bytes at {} of the data, which has only {}; the file is cut "
                                       "short or wrong",
                                       one.bytes, one.offset, size));
    }
    end = one.offset + one.bytes;
    tensor.bytes = file_.subspan(static_cast<size_t>(begin + one.offset), static_cast<size_t>(one.bytes));
  }
  return {};
}

Result<Gguf> Gguf::parse(std::span<const std::byte> file, std::string path) {
  return GgufReader(file, std::move(path)).read();
}

}  // namespace quern
