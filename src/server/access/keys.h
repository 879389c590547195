// Keys: who may ask. Compared in constant time over hashes. Immutable; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/http.h"
#include "server/access/api_key.h"
#include "server/access/budget.h"
#include "server/call.h"

namespace quern {

class Keys {
 public:
  /// Who has the same name and key as in `before` keeps what is used of their limits.
  explicit Keys(std::vector<ApiKey> keys, const Keys* before = nullptr);

  bool required() const { return !holders_.empty(); }
  /// Nothing when the request carries none of the keys. With several keys each is a tenant with prefixes of its own.
  std::optional<Principal> check(const HttpRequest& request) const;

 private:
  struct Holder {
    ApiKey key;
    std::shared_ptr<KeyBudget> budget;
  };
  std::vector<Holder> holders_;
};

/// The key that a request carries, as `Authorization: Bearer KEY` or `x-api-key: KEY`; "" for none.
std::string_view key_of(const HttpRequest& request);

/// Whether a name in a Host header stands for the loopback interface, or is an address (which DNS cannot rebind).
bool is_local_host(std::string_view host);

}  // namespace quern
