#include "net/unix_socket.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace quern {
namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

int open_socket() { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

/// Whether what is at `path` is a socket that nobody listens on.
bool is_left_over(const std::string& path, const sockaddr_un& address) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const int probe = open_socket();
  const int refused = ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0 ? errno : 0;
  ::close(probe);
  return refused == ECONNREFUSED;
}

}  // namespace

Result<int> listen_at(const std::string& path) {
  const sockaddr_un address = address_of(path);
  if (path.size() >= sizeof address.sun_path)
    return Error{fmt::format("--uds {}: the path is longer than {} bytes", path, sizeof address.sun_path - 1)};
  const int listener = open_socket();
  if (listener < 0) return Error{fmt::format("--uds {}: {}", path, std::strerror(errno))};
  if (is_left_over(path, address)) ::unlink(path.c_str());
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(listener, SOMAXCONN) == 0)
    return listener;
  const int failure = errno;
  ::close(listener);
  if (failure == EADDRINUSE)
    return Error{fmt::format("--uds {}: the file is there and in use; choose another path, or remove it", path)};
  return Error{fmt::format("--uds {}: {}", path, std::strerror(failure))};
}

}  // namespace quern
