// Safetensors: one file's header as a tensor table, and a directory of such files as a Checkpoint. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/source.h"

namespace quern {

/// Reads and checks the header of a whole file; the tensors' bytes are parts of `file`. `path` is for messages.
Result<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> file, const std::string& path);

/// A directory with config.json and model.safetensors, or shards and their index.
Result<std::unique_ptr<Checkpoint>> open_safetensors(const std::string& directory);

}  // namespace quern
