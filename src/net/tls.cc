#include "net/tls.h"

#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <openssl/err.h>

#include "base/file.h"
#include "net/stream.h"

namespace quern {
namespace {

namespace ssl = boost::asio::ssl;
using Failure = boost::system::error_code;

/// Where systems keep the authorities that they trust; a program that is linked statically knows only one of them.
constexpr std::array<const char*, 5> kStores = {
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"};

std::shared_ptr<Tls> make_tls(ssl::context::method method) {
  auto tls = std::make_shared<Tls>(method);
  tls->context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                           ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  return tls;
}

Result<std::shared_ptr<Tls>> make_client() {
  auto tls = make_tls(ssl::context::tls_client);
  Failure failure;
  tls->context.set_verify_mode(ssl::verify_peer, failure);
  const bool named = std::getenv("SSL_CERT_FILE") != nullptr || std::getenv("SSL_CERT_DIR") != nullptr;
  bool found = false;
  for (const char* store : kStores) {
    if (named || found || !file_exists(store)) continue;
    tls->context.load_verify_file(store, failure);
    found = !failure;
  }
  if (!found) tls->context.set_default_verify_paths(failure);
  if (failure) return Error{fmt::format("cannot read the system's certificates: {}", failure.message())};
  const char* file = std::getenv("SSL_CERT_FILE");
  if (file != nullptr && !file_exists(file)) {
    return Error{fmt::format("{}: there is no such file, but $SSL_CERT_FILE names it", file)};
  }
  return tls;
}

}  // namespace

Result<std::shared_ptr<Tls>> tls_for_server(const TlsFiles& files) {
  auto tls = make_tls(ssl::context::tls_server);
  Failure failure;
  tls->context.use_certificate_chain_file(files.certificates, failure);
  if (failure) {
    return Error{
        fmt::format("{}: no certificate in PEM format can be read from it: {}", files.certificates, failure.message())};
  }
  const std::string& key = files.key.empty() ? files.certificates : files.key;
  tls->context.use_private_key_file(key, ssl::context::pem, failure);
  if (failure) {
    return Error{
        fmt::format("{}: no private key of {} can be read from it: {}", key, files.certificates, failure.message())};
  }
  if (!files.client_authorities.empty()) {
    tls->context.load_verify_file(files.client_authorities, failure);
    if (failure) {
      return Error{
          fmt::format("{}: no certificates can be read from it: {}", files.client_authorities, failure.message())};
    }
    tls->context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, failure);
  }
  return tls;
}

Result<std::shared_ptr<Tls>> tls_for_client() {
  static const Result<std::shared_ptr<Tls>> shared = make_client();
  return shared;
}

}  // namespace quern
