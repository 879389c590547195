#include "checkpoint/safetensors.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "checkpoint/wording.h"
#include "formats/words.h"

namespace quern {
namespace {

constexpr uint64_t longest_header = 100'000'000;

struct StoredType {
  std::string_view name;
  int64_t bits;
};
constexpr StoredType stored_types[] = {
    {"F64", 64}, {"F32", 32},    {"F16", 16},    {"BF16", 16}, {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
    {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"C64", 64},  {"I64", 64},    {"I32", 32},    {"I16", 16},
    {"I8", 8},   {"U64", 64},    {"U32", 32},    {"U16", 16},  {"U8", 8},      {"BOOL", 8},
};

/// A header under examination; `where` starts every message.
struct Header {
  const std::string& path;
  std::span<const std::byte> data;  // behind the header

  Error refuse(std::string_view tensor, std::string_view why) const {
    return Error{fmt::format("{}: tensor {}: {}", path, quoted(tensor), why)};
  }
  Result<StoredTensor> tensor(const std::string& name, const Json& entry) const;
  Result<std::vector<int64_t>> shape(const std::string& name, const Json& entry) const;
  Result<std::span<const std::byte>> range(const std::string& name, const Json& entry) const;
};

Result<std::vector<int64_t>> Header::shape(const std::string& name, const Json& entry) const {
  const Json* list = entry.find("shape");
  if (list == nullptr || !list->is_array()) return refuse(name, "\"shape\" is missing or no list");
  std::vector<int64_t> shape;
  for (const Json& dim : list->items()) {
    if (!dim.is_integer() || dim.as_integer() < 0) {
      return refuse(name, fmt::format("\"shape\" holds {}, which is no size", quoted(dim.dump())));
    }
    shape.push_back(dim.as_integer());
  }
  return shape;
}

Result<std::span<const std::byte>> Header::range(const std::string& name, const Json& entry) const {
  const Json* list = entry.find("data_offsets");
  const bool good = list != nullptr && list->is_array() && list->items().size() == 2 && list->items()[0].is_integer() &&
                    list->items()[1].is_integer();
  if (!good) return refuse(name, "\"data_offsets\" is missing or not two integers");
  const int64_t begin = list->items()[0].as_integer();
  const int64_t end = list->items()[1].as_integer();
  if (begin < 0 || end < begin)
    return refuse(name, fmt::format("offsets {} to {} are reversed or negative", begin, end));
  if (static_cast<uint64_t>(end) > data.size()) {
    return refuse(name,
                  fmt::format("ends at byte {} of {} in the data; the file is cut short or wrong", end, data.size()));
  }
  return data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

/// Bytes of so many values; nothing when they do not fit 63 bits or are no whole bytes.
std::optional<int64_t> stored_bytes(std::span<const int64_t> shape, int64_t bits) {
  int64_t total = bits;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(total, dim, &total)) return std::nullopt;
  }
  return total % 8 == 0 ? std::optional(total / 8) : std::nullopt;
}

Result<StoredTensor> Header::tensor(const std::string& name, const Json& entry) const {
  if (name.empty()) return refuse(name, "has no name");
  if (!entry.is_object()) return refuse(name, fmt::format("is {}, expected an object", entry.kind()));
  const std::string type = entry.string("dtype").value_or("");
  const auto* known = std::find_if(std::begin(stored_types), std::end(stored_types),
                                   [&](const StoredType& stored) { return stored.name == type; });
  if (known == std::end(stored_types)) return refuse(name, fmt::format("unknown dtype {}", quoted(type)));
  StoredTensor tensor;
  tensor.name = name;
  tensor.type = type;
  ASSIGN_OR_RETURN(tensor.shape, shape(name, entry));
  ASSIGN_OR_RETURN(tensor.bytes, range(name, entry));
  const std::optional<int64_t> bytes = stored_bytes(tensor.shape, known->bits);
  if (!bytes || static_cast<uint64_t>(*bytes) != tensor.bytes.size()) {
    return refuse(
        name, fmt::format("{} of {} does not fit its {} bytes", type, shape_text(tensor.shape), tensor.bytes.size()));
  }
  return tensor;
}

Status check_metadata(const Json& metadata, const std::string& path) {
  const Error error{fmt::format("{}: \"__metadata__\" must map strings to strings", path)};
  if (!metadata.is_object()) return error;
  for (const auto& [key, value] : metadata.members()) {
    if (!value.is_string()) return error;
  }
  return {};
}

/// The tensors must cover the data exactly: no overlap, no hole, nothing behind the last.
Status check_coverage(const Header& header, const std::vector<StoredTensor>& tensors) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
  });
  const std::byte* next = header.data.data();
  for (const StoredTensor* tensor : order) {
    if (tensor->bytes.data() < next) return header.refuse(tensor->name, "overlaps another tensor");
    if (tensor->bytes.data() > next) return header.refuse(tensor->name, "has a hole before its data");
    next += tensor->bytes.size();
  }
  const auto rest = header.data.data() + header.data.size() - next;
  if (rest != 0) return Error{fmt::format("{}: {} bytes behind the last tensor", header.path, rest)};
  return {};
}

}  // namespace

Result<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < 8) return Error{fmt::format("{}: {} bytes are too few for a safetensors file", path, file.size())};
  const uint64_t length = uint64_t{load_u32(file.data())} | uint64_t{load_u32(file.data() + 4)} << 32;
  if (length > longest_header) {
    return Error{fmt::format("{}: a header of {} bytes is more than the {} allowed; not a safetensors file?", path,
                             length, longest_header)};
  }
  if (length > file.size() - 8) {
    return Error{fmt::format("{}: the header has {} bytes, but only {} follow; the file is cut short", path, length,
                             file.size() - 8)};
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, static_cast<size_t>(length));
  auto json = Json::parse(text, 8, Json::Repeated::refused);
  if (!json.ok()) return Error{fmt::format("{}: header: {}", path, json.error().message)};
  if (!json->is_object()) return Error{fmt::format("{}: the header is {}, expected an object", path, json->kind())};

  const Header header{path, file.subspan(8 + static_cast<size_t>(length))};
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : json->members()) {
    if (name == "__metadata__") {
      TRY(check_metadata(entry, path));
      continue;
    }
    ASSIGN_OR_RETURN(StoredTensor tensor, header.tensor(name, entry));
    tensors.push_back(std::move(tensor));
  }
  TRY(check_coverage(header, tensors));
  return tensors;
}

}  // namespace quern
