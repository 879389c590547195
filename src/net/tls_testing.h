// Certificates for tests, made when they are needed. Only for tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string>
#include <unistd.h>

#include "base/check.h"

namespace quern::testing {

/// A certificate that is signed with its own key, and that key, as PEM files in a folder of the test's process.
struct TestCertificate {
  std::string certificate, key;

  TestCertificate(const std::string& name, const std::string& host) {
    const std::string folder = "/tmp/quern_tls_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder);
    certificate = folder + "/" + name + ".crt";
    key = folder + "/" + name + ".key";
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> secret(EVP_EC_gen("P-256"), &EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> made(X509_new(), &X509_free);
    CHECK(secret && made);
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
    X509_set_pubkey(made.get(), secret.get());
    X509_NAME* subject = X509_get_subject_name(made.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                               -1, 0);
    X509_set_issuer_name(made.get(), subject);
    const std::string names = "DNS:" + host;
    X509_EXTENSION* alternative = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str());
    X509_add_ext(made.get(), alternative, -1);
    X509_EXTENSION_free(alternative);
    CHECK(X509_sign(made.get(), secret.get(), EVP_sha256()) > 0);
    FILE* out = std::fopen(certificate.c_str(), "w");
    CHECK(out != nullptr && PEM_write_X509(out, made.get()) == 1 && std::fclose(out) == 0);
    out = std::fopen(key.c_str(), "w");
    CHECK(out != nullptr);
    CHECK(PEM_write_PrivateKey(out, secret.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1 && std::fclose(out) == 0);
  }
};

}  // namespace quern::testing
