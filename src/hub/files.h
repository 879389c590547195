// Which files of a repository make a model. Values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/name.h"

namespace quern {

struct HubFile {
  std::string path;    // in the repository
  int64_t bytes = -1;  // -1: the listing does not say
  std::string digest;  // hex: a SHA-256 (64), or git's of a small file (40); empty: the listing does not say
};

/// A model that can be loaded from some of a repository's files.
struct ModelFiles {
  std::string variant;         // what a name says after the colon; empty for safetensors
  std::string entry;           // the GGUF file to open, the first of its parts; empty: the folder is opened
  std::vector<HubFile> files;  // all that loading reads
};

/// The models of a repository: its safetensors first, then its GGUF files in the order in which they are preferred.
/// Those that miss a part are left out.
std::vector<ModelFiles> models_among(const std::vector<HubFile>& files);

/// The model that `name` means; the error lists the ones that there are.
Result<ModelFiles> choose_model(const ModelName& name, const std::vector<HubFile>& files);

}  // namespace quern
