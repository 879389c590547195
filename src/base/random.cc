#include "base/random.h"

#include <fmt/format.h>
#include <random>

namespace quern {

std::string random_hex() {
  thread_local std::random_device device;
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:08x}", device());
  return text;
}

}  // namespace quern
