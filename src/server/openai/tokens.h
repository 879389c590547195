// /tokenize, /detokenize and /v1/models: the answers that need no engine. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/models/keeper.h"
#include "server/openai/errors.h"
#include "server/openai/generation.h"

namespace quern {

/// Bodies of answers.
Checked<std::string> tokenize(Fields& fields, const TextModel& model);
Checked<std::string> detokenize(Fields& fields, const TextModel& model);
/// What a client needs to make the same prompts itself, in the words of tokenizer_config.json.
std::string tokenizer_info(const TextModel& model);
std::string list_models(std::span<const ModelState> models, int64_t created);
Checked<std::string> describe_model(std::string_view name, std::span<const ModelState> models, int64_t created);

}  // namespace quern
