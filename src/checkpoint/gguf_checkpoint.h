// A GGUF file as a Checkpoint that speaks the language of Hugging Face: the translation of keys and names. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "base/result.h"
#include "checkpoint/gguf.h"
#include "checkpoint/source.h"

namespace quern {

/// Of a model in parts, any of them.
Result<std::unique_ptr<Checkpoint>> open_gguf(MappedFile file);

/// The metadata as the keys of config.json; refuses architectures that are not known, and impossible sizes.
Result<Json> gguf_config(const Gguf& gguf);
/// Sampling defaults and end tokens, as the keys of generation_config.json; null when the file has none. `vocab` bounds
/// the token ids.
Result<Json> gguf_generation_config(const Gguf& gguf, int64_t vocab);

/// The tables `tokenizer.ggml.*`; nothing when the file has no vocabulary. Lengths, types and ids are checked.
Result<std::optional<StoredVocabulary>> gguf_vocabulary(const Gguf& gguf);

}  // namespace quern
