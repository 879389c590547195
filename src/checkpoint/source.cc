#include "checkpoint/source.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/file.h"
#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/wording.h"
#include "formats/list.h"

namespace quern {
namespace {

std::vector<Scheme>& schemes() {
  static std::vector<Scheme> all = [] {
    std::vector<Scheme> reserved;
    reserved.reserve(64);  // find_scheme hands out pointers
    return reserved;
  }();
  return all;
}

/// Why a file that is no GGUF file is no model.
Error refuse_file(const std::string& path, std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 4));
  if (path.ends_with(".safetensors")) {
    return Error{fmt::format("{}: give the directory that holds it, with its config.json and tokenizer.json", path)};
  }
  const bool pickle = head.starts_with("PK") || head.starts_with("\x80\x02") || path.ends_with(".bin") ||
                      path.ends_with(".pt") || path.ends_with(".pth");
  if (pickle) {
    return Error{fmt::format(
        "{}: pickled PyTorch files can run code and are never loaded; use a safetensors or GGUF version", path)};
  }
  return Error{
      fmt::format("{}: is not a GGUF file (it starts with {}); give a .gguf file, or a directory with config.json and "
                  "*.safetensors",
                  path, bytes.empty() ? "nothing, it is empty" : quoted(head))};
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return Error{"the model's path holds a NUL character"};
  if (is_directory(path)) return open_safetensors(path);
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file.bytes();
  constexpr std::string_view magic = "GGUF";
  const bool gguf = bytes.size() >= magic.size() &&
                    std::string_view(reinterpret_cast<const char*>(bytes.data()), magic.size()) == magic;
  if (!gguf && !path.ends_with(".gguf")) return refuse_file(path, bytes);
  return open_gguf(std::move(file));
}

bool register_scheme(const Scheme& scheme) {
  CHECK(find_scheme(scheme.stored_type) == nullptr);
  CHECK(schemes().size() < schemes().capacity());
  schemes().push_back(scheme);
  return true;
}

const Scheme* find_scheme(std::string_view stored_type) {
  for (const Scheme& scheme : schemes()) {
    if (scheme.stored_type == stored_type) return &scheme;
  }
  return nullptr;
}

std::vector<std::string_view> known_types() {
  std::vector<std::string_view> types;
  for (const Scheme& scheme : schemes()) types.push_back(scheme.stored_type);
  std::sort(types.begin(), types.end());
  return types;
}

Result<const Scheme*> check_tensor(const Checkpoint& checkpoint, const StoredTensor& tensor,
                                   std::span<const int64_t> shape) {
  const std::string what = fmt::format("{}: tensor {}", checkpoint.path(), quoted(tensor.name));
  if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) {
    return Error{fmt::format("{} is {}, expected {}", what, shape_text(tensor.shape), shape_text(shape))};
  }
  const Scheme* scheme = find_scheme(tensor.type);
  if (tensor.type == "Q8_1" || tensor.type == "Q8_K") {
    return Error{fmt::format("{} has type {}, which is for activations; no weight can have it", what, tensor.type)};
  }
  if (scheme == nullptr) {
    return Error{
        fmt::format("{} has type {}, which is not supported (known: {})", what, tensor.type, list_text(known_types()))};
  }
  const int64_t group = std::max<int64_t>(format_info(scheme->format).group, scheme->block_values);
  if (shape.size() >= 2 && shape.back() % group != 0) {
    return Error{fmt::format("{} has rows of {} values, expected a multiple of {}", what, shape.back(), group)};
  }
  return scheme;
}

}  // namespace quern
