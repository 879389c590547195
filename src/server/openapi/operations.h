// Operation: what /openapi.json says of an endpoint, and how its requests are read. Values.
#pragma once

#include <span>
#include <string_view>

#include "server/openai/fields.h"
#include "server/openai/generation.h"
#include "server/routes.h"

namespace quern {

struct Operation {
  Endpoint endpoint;
  std::string_view summary;
  void (*read)(Fields& fields, const TextModel& model) = nullptr;  // the body; none where nothing is told of it
  bool streams = false;                                            // the answer may be a stream of events
};

std::span<const Operation> operations();
/// nullptr when nothing is told of it.
const Operation* operation_of(Endpoint endpoint);

/// What a field of that name means; "" when that is not told.
std::string_view description_of(std::string_view field);

}  // namespace quern
