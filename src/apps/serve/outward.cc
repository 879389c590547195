#include "apps/serve/outward.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace quern {

std::string outward_address() {
  const int probe = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return "";
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(9);
  ::inet_pton(AF_INET, "192.0.2.1", &there.sin_addr);  // of documentation; to connect sends nothing
  sockaddr_in here{};
  socklen_t size = sizeof here;
  const bool found = ::connect(probe, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0 &&
                     ::getsockname(probe, reinterpret_cast<sockaddr*>(&here), &size) == 0;
  ::close(probe);
  char text[INET_ADDRSTRLEN] = "";
  if (found) ::inet_ntop(AF_INET, &here.sin_addr, text, sizeof text);
  return text;
}

}  // namespace quern
