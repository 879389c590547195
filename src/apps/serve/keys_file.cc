#include "apps/serve/keys_file.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

#include "base/file.h"
#include "base/flags.h"
#include "base/json.h"
#include "base/toml.h"

namespace quern {
namespace {

constexpr int64_t kMaxBytes = 16 << 20;
constexpr size_t kLeastKeyBytes = 8;
constexpr std::array<std::string_view, 6> kMembers = {
    "key", "sha256", "requests_per_minute", "tokens_per_minute", "concurrency", "priority"};

Result<KeyDigest> digest_of(const Json& holder) {
  const auto key = holder.string("key");
  const auto sha256 = holder.string("sha256");
  if (key.has_value() == sha256.has_value()) return Error{"say either key or sha256, as a string"};
  if (key && key->size() < kLeastKeyBytes)
    return Error{fmt::format("a key has at least {} characters", kLeastKeyBytes)};
  if (key) return key_digest(*key);
  KeyDigest digest{};
  const auto hex = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (sha256->size() != 2 * digest.size() || std::ranges::any_of(*sha256, [&](char c) { return hex(c) < 0; }))
    return Error{"sha256 takes 64 digits from 0-9 and a-f"};
  for (size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<unsigned char>(hex((*sha256)[2 * i]) * 16 + hex((*sha256)[2 * i + 1]));
  return digest;
}

Result<int64_t> number_of(const Json& holder, std::string_view name, int64_t low, int64_t high) {
  const Json* value = holder.find(name);
  if (value == nullptr) return 0;
  if (!value->is_integer() || value->as_integer() < low || value->as_integer() > high)
    return Error{fmt::format("{} takes a whole number from {} to {}", name, low, high)};
  return value->as_integer();
}

Result<ApiKey> key_of(const std::string& name, const Json& holder) {
  if (!holder.is_object()) return Error{"each holder is a table: [NAME]"};
  for (const auto& [member, value] : holder.members()) {
    if (std::ranges::find(kMembers, member) != kMembers.end()) continue;
    const std::string_view close = nearest(member, kMembers);
    return Error{close.empty() ? fmt::format("{} is not known", member)
                               : fmt::format("{} is not known; did you mean {}?", member, close)};
  }
  ApiKey key;
  key.name = name;
  ASSIGN_OR_RETURN(key.digest, digest_of(holder));
  constexpr int64_t most = 1'000'000'000'000;
  ASSIGN_OR_RETURN(key.limits.requests_per_minute, number_of(holder, "requests_per_minute", 1, most));
  ASSIGN_OR_RETURN(key.limits.tokens_per_minute, number_of(holder, "tokens_per_minute", 1, most));
  ASSIGN_OR_RETURN(key.limits.concurrency, number_of(holder, "concurrency", 1, most));
  ASSIGN_OR_RETURN(const int64_t priority, number_of(holder, "priority", -1'000'000, 1'000'000));
  key.limits.priority = static_cast<int32_t>(priority);
  return key;
}

}  // namespace

Result<std::vector<ApiKey>> read_keys(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  const auto holders = parse_toml(text);
  if (!holders.ok()) return Error{fmt::format("{}: {}", path, holders.error().message)};
  std::vector<ApiKey> keys;
  for (const auto& [name, holder] : holders->members()) {
    auto key = key_of(name, holder);
    if (!key.ok()) return Error{fmt::format("{}: {}: {}", path, name, key.error().message)};
    for (const ApiKey& other : keys) {
      if (other.digest == key->digest)
        return Error{fmt::format("{}: {} and {} have the same key", path, other.name, name)};
    }
    keys.push_back(std::move(*key));
  }
  if (keys.empty()) return Error{fmt::format("{}: has no keys, so that everybody could ask", path)};
  return keys;
}

}  // namespace quern
