// Task: what a model is served for (text, vectors, scores), and how vectors are made of its hidden states: what the
// files of sentence-transformers say, or the keys of a GGUF file, or the user. Thread: main.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/source.h"
#include "engine/request.h"
#include "model/spec.h"

namespace quern {

struct Task {
  OutputKind output = OutputKind::tokens;
  bool normalize = true;                       // vectors get length 1
  bool any_dimensions = false;                 // shorter vectors mean something too
  std::vector<int32_t> dimensions;             // or those of these lengths
  std::map<std::string, std::string> prompts;  // by name: what is put before a text
  std::string default_prompt;
  bool sigmoid = true;  // scores are brought between 0 and 1
  int max_tokens = 0;   // of a text, as the files say; 0: they do not
};

/// "generate", "embed", "score".
const char* task_name(OutputKind output);

/// `wanted` is auto or the name of a task. Completes spec->pooler, or removes it from a model that is to make text.
/// `config` is config.json with what the user laid over it.
Result<Task> choose_task(const Checkpoint& checkpoint, const Json& config, const std::string& wanted,
                         DecoderSpec* spec);

}  // namespace quern
