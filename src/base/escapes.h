// Bytes as URLs and headers spell them.
#pragma once

#include <string>
#include <string_view>

namespace quern {

/// Percent escapes (RFC 3986, 2.1) read once; what is none stays as it is.
std::string percent_decoded(std::string_view text);

/// With padding (RFC 4648, 4).
void append_base64(std::string& out, std::string_view bytes);

}  // namespace quern
