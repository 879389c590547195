// Items of the Responses API: what a conversation is made of there. Checked and completed, and as messages of a chat.
// Values.
#pragma once

#include <string>

#include "base/json.h"
#include "server/openai/errors.h"

namespace quern {

/// `input` as a list of items: text is a message of the user, contents are lists of parts, and each item has its type
/// and an id. What no model here can take is refused by name.
Checked<Json::Array> read_items(const Json& input);

/// Items as read_items() gives them, or as answers have them, after `instructions`. What one turn of the assistant
/// is made of becomes one message. System messages at the start are joined, as many templates take no more than one.
Json::Array chat_of_items(const Json::Array& items, const std::string& instructions);

}  // namespace quern
