// Methods of strings, as Python's str has them.
#pragma once

#include "text/template/renderer.h"

namespace quern {

NativeCode find_string_method(std::string_view name);

}  // namespace quern
