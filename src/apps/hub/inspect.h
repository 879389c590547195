// What the files of a model say about it, without loading it. Any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "server/model_library.h"

namespace quern {

/// Fills in what is read from the files at `path` (Checkpoint::open's): format, family, sizes, template, license.
/// Models that cannot be loaded are described too, as far as they can be read.
Result<ModelDetails> inspect_model(const std::string& path);

/// 134515008 as "134.52M", 8030261248 as "8.03B".
std::string count_text(int64_t parameters);

}  // namespace quern
