// What a model's reply is made of: content, reasoning and calls, piece by piece. Values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/reply/tool.h"

namespace quern {

struct ReplyPiece {
  enum class Kind : uint8_t {
    content,
    reasoning,
    call,       // a call begins: `text` is the function's name
    arguments,  // more of the arguments of that call: pieces of one JSON text
  };
  Kind kind = Kind::content;
  int32_t call = -1;  // which one, from 0; of call and arguments
  std::string text;
  std::string id;  // of a call, when the model spelled one
};

/// How one reply is to be read.
struct ReplyOptions {
  std::vector<Tool> tools;
  bool calls = false;     // calls are looked for; else their spelling is text like any other
  bool one_call = false;  // nothing after the first call counts
  bool thinking = false;  // the prompt has opened the reasoning
  /// A grammar makes sure of what follows the start of a call, so that it can be passed on as it arrives. Else a call
  /// is passed on when it is whole, and one that is not well-formed comes back as content.
  bool eager = false;
};

}  // namespace quern
