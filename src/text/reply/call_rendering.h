// CallRendering: what a chat template makes of tools and of the calls in earlier messages; found by trying it. Values.
#pragma once

#include "text/chat_template.h"

namespace quern {

struct CallRendering {
  bool tools = false;             // it has a place for tools
  bool takes_objects = true;      // arguments as an object come out as JSON
  bool takes_text = false;        // arguments as JSON text come out as they are
  bool takes_no_content = false;  // a message with calls and without content may have null there
  bool reads_thinking = false;    // it wants reasoning as "thinking"
};

CallRendering try_calls(const ChatTemplate& chat_template);

}  // namespace quern
