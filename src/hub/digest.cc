#include "hub/digest.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <memory>
#include <openssl/evp.h>
#include <unistd.h>
#include <vector>

#include "base/file.h"

namespace quern {
namespace {

class Digest {
 public:
  explicit Digest(const EVP_MD* kind) : state_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    CHECK(state_ && EVP_DigestInit_ex(state_.get(), kind, nullptr) == 1);
  }
  void add(std::string_view text) { CHECK(EVP_DigestUpdate(state_.get(), text.data(), text.size()) == 1); }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned size = 0;
    CHECK(EVP_DigestFinal_ex(state_.get(), bytes.data(), &size) == 1);
    std::string out;
    for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", bytes[i]);
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> state_;
};

}  // namespace

Result<std::string> file_digest(int descriptor, int64_t bytes, std::string_view like) {
  const bool git = like.size() == 40;
  Digest digest(git ? EVP_sha1() : EVP_sha256());
  if (git) digest.add(std::string_view(fmt::format("blob {}", bytes) + '\0'));
  std::vector<char> block(1 << 20);
  for (int64_t at = 0; at < bytes;) {
    const auto wanted = static_cast<size_t>(std::min<int64_t>(bytes - at, static_cast<int64_t>(block.size())));
    const ssize_t got = ::pread(descriptor, block.data(), wanted, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? file_error("a file") : Error{"a file ended early"};
    digest.add({block.data(), static_cast<size_t>(got)});
    at += got;
  }
  return digest.hex();
}

std::string text_digest(std::string_view text) {
  Digest digest(EVP_sha256());
  digest.add(text);
  return digest.hex();
}

}  // namespace quern
