#include "server/auth.h"

#include <algorithm>
#include <cstring>
#include <openssl/crypto.h>
#include <openssl/sha.h>

namespace quern {
namespace {

bool starts_with_ignoring_case(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), text.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b + 32) : b);
         });
}

}  // namespace

Keys::Digest Keys::digest_of(std::string_view text) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

Keys::Keys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(digest_of(key));
}

std::optional<Principal> Keys::check(const HttpRequest& request) const {
  if (!required()) return Principal{};
  const Digest given = digest_of(key_of(request));
  std::optional<Principal> found;
  for (const Digest& digest : digests_) {
    if (CRYPTO_memcmp(given.data(), digest.data(), digest.size()) != 0) continue;
    uint64_t client = 0;
    std::memcpy(&client, digest.data(), sizeof client);
    found =
        Principal{ClientId{client}, digests_.size() > 1 ? std::string(digest.begin(), digest.end()) : std::string()};
  }
  return found;
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
