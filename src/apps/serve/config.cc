#include "apps/serve/config.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/toml.h"

namespace quern {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;

Status add_words(const std::string& key, const Json& value, const Flags& flags, std::vector<std::string>& words) {
  if (value.is_array()) {
    for (const Json& item : value.items()) {
      if (item.is_array()) return Error{fmt::format("{}: a list in a list means nothing", key)};
      TRY(add_words(key, item, flags, words));
    }
    return {};
  }
  if (value.is_object()) return Error{fmt::format("[{}]: flags stand in no table", key)};
  if (value.is_bool() != flags.is_switch("--" + key) && key != "models" && flags.knows("--" + key))
    return Error{fmt::format("{} takes {}", key, value.is_bool() ? "a value" : "true or false")};
  if (value.is_bool()) {
    words.push_back((value.as_bool() ? "--" : "--no-") + key);
    return {};
  }
  std::string text = value.is_string() ? value.as_string() : value.dump();
  if (key == "models" && text.starts_with('-')) return Error{fmt::format("models: {} is no name of a model", text)};
  words.push_back(key == "models" ? std::move(text) : fmt::format("--{}={}", key, text));
  return {};
}

}  // namespace

Result<std::vector<std::string>> config_words(const std::string& path, const Flags& flags) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  const auto config = parse_toml(text);
  if (!config.ok()) return Error{fmt::format("{}: {}", path, config.error().message)};
  std::vector<std::string> words;
  for (const auto& [key, value] : config->members()) {
    const Status added = add_words(key, value, flags, words);
    if (!added.ok()) return Error{fmt::format("{}: {}", path, added.error().message)};
  }
  return words;
}

}  // namespace quern
