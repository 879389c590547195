// Gate: everything that a request can be refused for before its body is read, and the headers that every answer has.
// Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "net/http.h"
#include "server/access/keys.h"
#include "server/metrics/metrics.h"
#include "server/options.h"
#include "server/routes.h"

namespace quern {

class Gate {
 public:
  /// `count` is told of refusals.
  Gate(const ServerOptions& options, std::function<void(Refusal)> count);

  /// The answer that refuses a request, if anything speaks against it.
  std::optional<HttpResponse> judge(const HttpRequest& head) const;
  /// The answer to a request without one of the keys.
  HttpResponse unauthorized(const HttpRequest& head) const;
  /// `id`: its X-Request-Id.
  HttpHeaders common_headers(const HttpRequest& request, std::string id) const;
  /// Who asks; nothing when their key has been taken away.
  std::optional<Principal> principal(const HttpRequest& request) const { return keys()->check(request); }
  /// Other keys, from now on; who keeps theirs keeps what is used of their limits.
  void set_keys(std::vector<ApiKey> keys);

  /// From now on nothing that generates passes.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }

 private:
  std::shared_ptr<const Keys> keys() const {
    return keys_.with([](const auto& keys) { return keys; });
  }
  bool is_open(const Route* route) const;
  bool origin_allowed(std::string_view origin) const;
  bool host_allowed(const HttpRequest& head) const;
  HttpResponse preflight(const HttpRequest& head) const;

  const ServerOptions options_;
  const std::function<void(Refusal)> count_;
  mutable Guarded<std::shared_ptr<const Keys>> keys_;
  std::atomic<bool> closed_ = false;
};

/// The client's X-Request-Id when it is short and plain, else a new one.
std::string request_id(const HttpRequest& request);
bool is_printable(std::string_view text);

}  // namespace quern
