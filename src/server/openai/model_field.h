// The model that a request's body names, found without parsing the rest. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace quern {

/// The string under the first "model" of the outermost object; "" when there is none, or the body is no such object.
std::string model_field(std::string_view body);

}  // namespace quern
