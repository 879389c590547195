// The text side of a checkpoint: its tokenizer and its chat template, or others that the user names.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "checkpoint/source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quern {

/// `other`: a tokenizer.json, a directory that has one, or a .gguf file, instead of the checkpoint's own; or empty.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const Checkpoint& checkpoint, const std::string& other = {});

/// A tokenizer by itself: such a file or directory.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer_at(const std::string& path);

/// `other`: a file or the text of a template itself, instead of the checkpoint's own; or empty. Nothing when the model
/// has no template.
Result<std::optional<ChatTemplate>> load_chat_template(const Checkpoint& checkpoint, const std::string& other = {});

}  // namespace quern
