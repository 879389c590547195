// The files of a GGUF model: one, or parts as llama-gguf-split makes them. Any thread.
#pragma once

#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "checkpoint/gguf.h"

namespace quern {

struct GgufFiles {
  std::vector<MappedFile> files;
  Gguf gguf;  // the metadata of the first, the tensors of all
};

/// Parses a file and, if it is a part, opens the others, which lie beside it: NAME-00001-of-00003.gguf and so on.
/// Refuses what is missing, in another order or of another model.
Result<GgufFiles> open_gguf_files(MappedFile file);

}  // namespace quern
