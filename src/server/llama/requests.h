// Requests of llama-server's own routes -> generations, and the answers that need no engine. Values.
#pragma once

#include <string>
#include <string_view>

#include "engine/engine.h"
#include "server/openai/errors.h"
#include "server/openai/generation.h"
#include "server/openai/pooling.h"

namespace quern {

Checked<Generation> parse_llama_completion(std::string_view body, const TextModel& model);
Checked<Generation> read_llama_completion(Fields& fields, const TextModel& model);
/// What stands between input_prefix and input_suffix.
Checked<Generation> parse_infill(std::string_view body, const TextModel& model);
Checked<Generation> read_infill(Fields& fields, const TextModel& model);
Checked<PoolingCall> parse_llama_embedding(std::string_view body, const TextModel& model);
Checked<PoolingCall> read_llama_embedding(Fields& fields, const TextModel& model);

/// Bodies of answers.
Checked<std::string> apply_template(Fields& fields, const TextModel& model);
std::string llama_props(const TextModel& model);
/// A slot for each sequence that can be computed at a time; so many as are running are shown as busy.
/// Refused when the request's `target` says that one must be free and none is.
Checked<std::string> llama_slots(std::string_view target, const TextModel& model, const EngineStats& stats);

}  // namespace quern
