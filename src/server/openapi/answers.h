// What the answers of OpenAI's routes look like, as JSON Schemas. Values.
#pragma once

#include "base/json.h"
#include "server/routes.h"

namespace quern {

/// Of a whole answer; null where nothing is told of it. tests/conformance/test_openapi.py holds real answers to it.
Json answer_schema(Endpoint endpoint);

}  // namespace quern
