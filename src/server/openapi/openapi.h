// /openapi.json: all routes, and the bodies of their requests as the readers of these ask for them. Values.
#pragma once

#include <string>

#include "base/json.h"
#include "server/openai/generation.h"
#include "server/routes.h"

namespace quern {

/// The document, version 3.1 of OpenAPI.
std::string openapi_document(const TextModel& model);

/// The body of an operation's requests as a JSON Schema. `endpoint` has a reader.
Json request_schema(Endpoint endpoint, const TextModel& model);

}  // namespace quern
