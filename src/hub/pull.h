// Brings a model from a hub into the cache. Thread: the caller's, which waits and tells the progress; connections have
// threads of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "hub/cache.h"
#include "hub/client.h"

namespace quern {

/// One file of a pull, and all of them. Sizes in bytes.
struct FileProgress {
  std::string file;
  std::string digest;  // hex
  int64_t total = 0;
  int64_t completed = 0;  // total: it is there and checked
  int64_t all_total = 0;
  int64_t all_completed = 0;
  bool waiting = false;  // for another process that brings the same file
};

/// False stops the pull; what has come is kept.
using OnFileProgress = std::function<bool(const FileProgress& progress)>;

/// Asks what the repository has at `revision`, brings the files that the model needs and are not there, checks each
/// against the hub's digest and shows them as a snapshot.
Result<CachedModel> pull_model(const HubOptions& options, const ModelName& name, const std::string& revision,
                               const OnFileProgress& on_progress);

}  // namespace quern
