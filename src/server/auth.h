// Keys: who may ask. Compared in constant time over hashes. Immutable; any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "net/http.h"
#include "server/call.h"

namespace quern {

class Keys {
 public:
  explicit Keys(const std::vector<std::string>& keys);

  bool required() const { return !digests_.empty(); }
  /// Nothing when the request carries none of the keys. With several keys each is a tenant with prefixes of its own.
  std::optional<Principal> check(const HttpRequest& request) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest_of(std::string_view text);

  std::vector<Digest> digests_;
};

/// The key that a request carries, as `Authorization: Bearer KEY` or `x-api-key: KEY`; "" for none.
std::string_view key_of(const HttpRequest& request);

/// Whether a name in a Host header stands for the loopback interface, or is an address (which DNS cannot rebind).
bool is_local_host(std::string_view host);

}  // namespace quern
