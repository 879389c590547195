#include "hub/name.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <vector>

namespace quern {
namespace {

constexpr size_t kLongestName = 96;  // of an organization or a repository

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_plain(char c) { return is_digit(c) || is_letter(c) || c == '-' || c == '_' || c == '.'; }

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return out;
}

bool is_repository_part(std::string_view name) {
  if (name.empty() || name.size() > kLongestName || !std::all_of(name.begin(), name.end(), is_plain)) return false;
  if (name.front() == '.' || name.front() == '-' || name.back() == '.' || name.back() == '-') return false;
  return name.find("--") == std::string_view::npos && name.find("..") == std::string_view::npos;
}

/// Takes `count` digits, at least one; npos when there are none.
size_t skip_digits(std::string_view text, size_t at) {
  const size_t begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  return at == begin ? std::string_view::npos : at;
}

/// In upper case: Q4_0, Q4_K_M, IQ2_XXS, TQ1_0, BF16, F32, MXFP4, MXFP4_MOE.
bool is_quantization(std::string_view text) {
  constexpr std::array<std::string_view, 7> whole = {"BF16", "F16", "F32", "FP16", "FP32", "MXFP4", "MXFP4_MOE"};
  if (std::find(whole.begin(), whole.end(), text) != whole.end()) return true;
  size_t at = text.starts_with("IQ") || text.starts_with("TQ") ? 2 : text.starts_with("Q") ? 1 : 0;
  if (at == 0) return false;
  at = skip_digits(text, at);
  while (at != std::string_view::npos && at < text.size()) {
    if (text[at] != '_') return false;
    const size_t begin = ++at;
    while (at < text.size() && (is_digit(text[at]) || is_letter(text[at]))) ++at;
    if (at == begin || at - begin > 3) return false;
  }
  return at == text.size();
}

}  // namespace

Result<ModelName> parse_model_name(std::string_view text) {
  const std::string given(text);
  for (const std::string_view hub : {"hf.co/", "huggingface.co/", "https://huggingface.co/", "https://hf.co/"}) {
    if (text.starts_with(hub)) text.remove_prefix(hub.size());
  }
  ModelName name;
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos) name.variant = text.substr(colon + 1);
  const bool cut = colon != std::string_view::npos && name.variant.empty();
  if (name.variant == "latest") name.variant.clear();
  name.repository = text.substr(0, colon);
  const size_t slash = name.repository.find('/');
  const bool two = slash != std::string::npos &&
                   is_repository_part(std::string_view(name.repository).substr(0, slash)) &&
                   is_repository_part(std::string_view(name.repository).substr(slash + 1));
  if (!two || cut || (!name.variant.empty() && !is_safe_path(name.variant))) {
    return Error{
        fmt::format("'{}' is no model of a hub; such a name is ORG/NAME, ORG/NAME:QUANTIZATION or "
                    "ORG/NAME:FILE.gguf",
                    given)};
  }
  return name;
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  size_t depth = 0;
  for (size_t begin = 0; begin <= path.size(); ++depth) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    const bool odd = std::any_of(part.begin(), part.end(), [](char c) {
      return static_cast<unsigned char>(c) < 32 || c == 127 || c == '\\' || c == ':';
    });
    if (part.empty() || part == "." || part == ".." || part.size() > 255 || odd) return false;
    begin = end + 1;
  }
  return depth <= 8;
}

bool is_digest(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

bool is_revision(std::string_view text) {
  return is_safe_path(text) && text.front() != '.' && text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_plain(c) || c == '/'; });
}

std::string quantization_in(std::string_view file) {
  std::string stem = upper(part_name(file).stem);
  stem = stem.substr(stem.rfind('/') + 1);
  for (size_t begin = 0; begin < stem.size(); ++begin) {
    if (begin > 0 && is_plain(stem[begin - 1]) && (is_digit(stem[begin - 1]) || is_letter(stem[begin - 1]))) continue;
    const std::string_view rest = std::string_view(stem).substr(begin);
    const std::string_view bare = rest.starts_with("UD-") ? rest.substr(3) : rest;
    if (is_quantization(bare)) return std::string(rest);
  }
  return "";
}

PartName part_name(std::string_view file) {
  PartName part;
  const size_t dot = file.rfind('.');
  std::string_view stem =
      file.substr(0, dot == std::string_view::npos || dot < file.rfind('/') + 1 ? file.size() : dot);
  constexpr std::string_view pattern = "-00000-of-00000";
  bool matches = stem.size() > pattern.size();
  const std::string_view tail = matches ? stem.substr(stem.size() - pattern.size()) : "";
  for (size_t i = 0; matches && i < pattern.size(); ++i)
    matches = pattern[i] == '0' ? is_digit(tail[i]) : tail[i] == pattern[i];
  if (matches) {
    const auto number = [&](size_t at) {
      int value = 0;
      for (const char c : tail.substr(at, 5)) value = value * 10 + (c - '0');
      return value;
    };
    if (number(1) >= 1 && number(1) <= number(10)) {
      part.number = number(1);
      part.count = number(10);
      stem.remove_suffix(pattern.size());
    }
  }
  part.stem = stem;
  return part;
}

}  // namespace quern
