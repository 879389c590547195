// Arguments that a dialect spells as text without types: the tool's schema says what they are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/reply/reply_reader.h"

namespace quern {

/// A text as the JSON value that a schema (nullptr: unknown) allows: read as JSON, or as a string where that does not
/// fit.
std::string typed_value(const Json* schema, std::string_view text);

/// Writes the arguments of the call that has begun, member by member.
class UntypedArguments {
 public:
  UntypedArguments(ReplyReader& in, std::string_view function);

  /// Reads the value of `key` up to one of `ends`; false when none comes.
  Reading<bool> read(std::string key, std::vector<Sought> ends);
  /// Ends the call.
  void end();

 private:
  const Json* schema_of(std::string_view key) const;

  ReplyReader& in_;
  const Json* properties_ = nullptr;
  bool begun_ = false;
};

}  // namespace quern
