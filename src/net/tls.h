// Tls: what one end of an encrypted connection knows: its own certificate, or whom it trusts. Constant once made; any
// thread.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace quern {

/// PEM files of a server. Without certificates it speaks plain HTTP.
struct TlsFiles {
  std::string certificates;        // the server's own one, then those that lead to a known authority
  std::string key;                 // empty: it is in the file of the certificates
  std::string client_authorities;  // if given, clients must show a certificate that one of these has signed
};

class Tls;

Result<std::shared_ptr<Tls>> tls_for_server(const TlsFiles& files);

/// Trusts the authorities that the system trusts, or those of $SSL_CERT_FILE and $SSL_CERT_DIR. Made once per process.
Result<std::shared_ptr<Tls>> tls_for_client();

}  // namespace quern
