#include "server/access/keys.h"

#include <algorithm>
#include <cstring>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <utility>

namespace quern {
namespace {

bool starts_with_ignoring_case(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), text.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b + 32) : b);
         });
}

}  // namespace

KeyDigest key_digest(std::string_view key) {
  KeyDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

Keys::Keys(std::vector<ApiKey> keys, const Keys* before) {
  for (ApiKey& key : keys) {
    std::shared_ptr<KeyBudget> budget;
    for (const Holder& known : before == nullptr ? std::vector<Holder>() : before->holders_) {
      if (known.key.name == key.name && known.key.digest == key.digest) budget = known.budget;
    }
    if (budget) {
      budget->set_limits(key.limits);
    } else {
      budget = std::make_shared<KeyBudget>(key.limits);
    }
    holders_.push_back({std::move(key), std::move(budget)});
  }
}

std::optional<Principal> Keys::check(const HttpRequest& request) const {
  if (!required()) return Principal{};
  const KeyDigest given = key_digest(key_of(request));
  const Holder* found = nullptr;
  for (const Holder& holder : holders_) {  // all of them, so that the time tells nothing
    if (CRYPTO_memcmp(given.data(), holder.key.digest.data(), given.size()) == 0) found = &holder;
  }
  if (found == nullptr) return std::nullopt;
  uint64_t client = 0;
  std::memcpy(&client, given.data(), sizeof client);
  Principal principal;
  principal.client = ClientId{client};
  if (holders_.size() > 1) principal.salt.assign(given.begin(), given.end());
  principal.name = found->key.name;
  principal.budget = found->budget;
  return principal;
}

std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view scheme = "bearer ";
  std::string_view authorization = request.header("authorization");
  if (starts_with_ignoring_case(authorization, scheme)) {
    authorization.remove_prefix(scheme.size());
    while (!authorization.empty() && authorization.front() == ' ') authorization.remove_prefix(1);
    return authorization;
  }
  return request.header("x-api-key");
}

bool is_local_host(std::string_view host) {
  if (host.empty()) return true;  // HTTP/1.0
  if (host.front() == '[') return true;
  host = host.substr(0, host.rfind(':'));
  if (host == "localhost" || (host.size() > 10 && host.substr(host.size() - 10) == ".localhost")) return true;
  return host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace quern
