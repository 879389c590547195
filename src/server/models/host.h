// ModelHost: where a server's models come from. What it makes is used on one thread, that of the keeper's loader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/models/served_model.h"

namespace quern {

/// A model as it is known without being loaded.
struct ModelCard {
  std::vector<std::string> names;  // what clients may send as `model`; the first one labels metrics
  std::string root;                // path or id, as /v1/models shows it
  OutputKind output = OutputKind::tokens;
  int32_t max_model_len = 0;
  int64_t bytes = 0;     // of memory that it will take
  bool preload = false;  // loaded at start
  bool pinned = false;   // never unloaded
};

class ModelHost {
 public:
  virtual ~ModelHost() = default;
  /// `name`: the first one of a card. The error is for the log.
  virtual Result<ModelParts> load(const std::string& name) = 0;
};

}  // namespace quern
