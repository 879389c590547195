// Random names. Any thread.
#pragma once

#include <string>

namespace quern {

/// 32 hexadecimal digits that nobody can guess.
std::string random_hex();

}  // namespace quern
