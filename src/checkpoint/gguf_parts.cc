#include "checkpoint/gguf_parts.h"

#include <fmt/format.h>

#include "checkpoint/wording.h"

namespace quern {
namespace {

constexpr int64_t most_parts = 99999;  // that the names can count

/// What a file says of itself; one of one if it is whole.
struct Place {
  int64_t number = 1;
  int64_t count = 1;
};

Result<Place> place_of(const Gguf& gguf) {
  ASSIGN_OR_RETURN(const auto count, gguf.integer("split.count"));
  ASSIGN_OR_RETURN(const auto number, gguf.integer("split.no"));
  if (!count || *count == 0 || *count == 1) return Place{};  // 0 is what joining parts leaves behind
  if (*count < 0 || *count > most_parts) return gguf.refuse("split.count", fmt::format("is {}", *count));
  if (!number || *number < 0 || *number >= *count) {
    return gguf.refuse(
        "split.no", fmt::format("is {}, expected 0 to {}", number ? std::to_string(*number) : "missing", *count - 1));
  }
  return Place{*number + 1, *count};
}

std::string ending(const Place& place) { return fmt::format("-{:05}-of-{:05}.gguf", place.number, place.count); }

Result<Gguf> parse_part(const MappedFile& file, const Place& expected) {
  ASSIGN_OR_RETURN(Gguf gguf, Gguf::parse(file.bytes(), file.path()));
  ASSIGN_OR_RETURN(const Place place, place_of(gguf));
  if (place.number != expected.number || place.count != expected.count) {
    return Error{fmt::format("{}: says that it is part {} of {}, expected part {} of {}", file.path(), place.number,
                             place.count, expected.number, expected.count)};
  }
  return gguf;
}

Status check_tensor_count(const Gguf& whole) {
  constexpr std::string_view key = "split.tensors.count";
  ASSIGN_OR_RETURN(const auto count, whole.integer(key));
  const auto found = static_cast<int64_t>(whole.tensors().size());
  if (count && *count != found) {
    return whole.refuse(key, fmt::format("is {}, but the parts have {} tensors", *count, found));
  }
  return {};
}

/// `file` is the part `place`, already parsed.
Result<GgufFiles> open_parts(MappedFile file, Gguf gguf, Place place) {
  const std::string path = file.path();
  if (!path.ends_with(ending(place))) {
    return Error{fmt::format("{}: is part {} of {}, so its name must end in {}; give the parts their names back", path,
                             place.number, place.count, ending(place))};
  }
  const std::string stem = path.substr(0, path.size() - ending(place).size());
  std::vector<MappedFile> files;
  std::vector<Gguf> parsed;
  for (int64_t number = 1; number <= place.count; ++number) {
    if (number == place.number) {
      files.push_back(std::move(file));
      parsed.push_back(std::move(gguf));
      continue;
    }
    const Place wanted{number, place.count};
    const std::string part = stem + ending(wanted);
    if (!file_exists(part)) {
      return Error{fmt::format("{}: part {} of {} is missing; fetch it too, into the same directory", part, number,
                               place.count)};
    }
    ASSIGN_OR_RETURN(MappedFile other, MappedFile::open(part));
    ASSIGN_OR_RETURN(Gguf other_gguf, parse_part(other, wanted));
    files.push_back(std::move(other));
    parsed.push_back(std::move(other_gguf));
  }
  Gguf whole = std::move(parsed.front());
  for (size_t i = 1; i < parsed.size(); ++i) TRY(whole.add_tensors(std::move(parsed[i])));
  TRY(check_tensor_count(whole));
  return GgufFiles{std::move(files), std::move(whole)};
}

}  // namespace

Result<GgufFiles> open_gguf_files(MappedFile file) {
  ASSIGN_OR_RETURN(Gguf gguf, Gguf::parse(file.bytes(), file.path()));
  ASSIGN_OR_RETURN(const Place place, place_of(gguf));
  if (place.count > 1) return open_parts(std::move(file), std::move(gguf), place);
  GgufFiles one{{}, std::move(gguf)};
  one.files.push_back(std::move(file));
  return one;
}

}  // namespace quern
