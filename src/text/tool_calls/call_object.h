// Calls as JSON objects: {"name": ..., "arguments": {...}}, which several dialects have.
#pragma once

#include <cstdint>
#include <string>

#include "text/reply/reply_reader.h"

namespace quern {

/// Which objects are calls.
enum class CallNames : uint8_t {
  any,    // a marker came before: everything with a name
  known,  // nothing else tells a call from other JSON: only those that name a tool and have no other members
};

/// Reads an object and passes the call in it on; false when it is none. Its brace may have been consumed.
Reading<bool> read_call_object(ReplyReader& in, CallNames names, bool opened = false);
/// Reads an array of them. Its bracket may have been consumed.
Reading<bool> read_call_array(ReplyReader& in, CallNames names, bool opened = false);
/// Reads the arguments of the call that has begun: an object, or nothing before the marker that ends the call.
Reading<bool> read_arguments(ReplyReader& in);
/// Whether a name can have this byte: letters, digits and `_-.:`.
bool in_name(int c);
/// Those, as far as they go.
Reading<std::string> read_name(ReplyReader& in);

}  // namespace quern
