// Structured output: every way in which clients say what an answer must look like. One call's thread.
#pragma once

#include "server/openai/fields.h"
#include "server/openai/generation.h"

namespace quern {

/// Reads `response_format` (OpenAI), `structured_outputs` and `guided_*` (vLLM), `json_schema` and `grammar`
/// (llama-server), `regex` and `ebnf` (SGLang) into generation.constraint; two of them are an error. After the answer's
/// parameters have been read.
void read_constraint(Fields& fields, Generation& generation);

}  // namespace quern
