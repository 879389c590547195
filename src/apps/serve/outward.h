// How other machines call this one. Values.
#pragma once

#include <string>

namespace quern {

/// The IPv4 address that packets to the world have; "" when there is no way to it.
std::string outward_address();

}  // namespace quern
