// JSON Schema as XGrammar understands it: what it would read in another way is rewritten, what it cannot do is refused,
// so that every answer that its grammar allows is valid under the schema that was asked for. Any thread.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace quern {

/// The schema rewritten; the error names the keyword and where it is. Beyond the keywords of JSON Schema (draft
/// 2020-12, and `definitions`) unknown ones are annotations, or with `strict` errors.
///
/// Narrower than the standard, on purpose: an object without `additionalProperties` has no other properties than those
/// it names, properties come in the schema's order, and `oneOf` must be told apart by a type or a constant.
Result<Json> xgrammar_schema(const Json& schema, bool strict);

}  // namespace quern
