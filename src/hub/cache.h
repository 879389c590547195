// HubCache: the folder in which Hugging Face's own tools keep models, read and written in their layout:
//   models--ORG--NAME/blobs/DIGEST                     the files
//   models--ORG--NAME/snapshots/COMMIT/PATH            links to them
//   models--ORG--NAME/refs/REVISION                    the commit of a branch or tag
//   .locks/models--ORG--NAME/DIGEST.lock               who brings a file here
// Any thread; processes agree through locks and renames.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "hub/files.h"
#include "hub/name.h"

namespace quern {

/// A lock file that this process holds; the system lets go of it when the process ends.
class FileLock {
 public:
  /// Nothing when somebody else holds it.
  static Result<std::optional<FileLock>> try_lock(const std::string& path);

  FileLock() = default;
  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileLock();

 private:
  int descriptor_ = -1;
};

/// A model that is complete in the cache.
struct CachedModel {
  ModelName name;  // its variant is the model's own word
  std::string commit;
  std::string folder;  // the snapshot
  ModelFiles files;    // that are there, with their digests where the cache knows them

  /// What Checkpoint::open takes.
  std::string path() const { return files.entry.empty() ? folder : folder + "/" + files.entry; }
};

class HubCache {
 public:
  explicit HubCache(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  std::string blob(const std::string& repository, const std::string& digest) const;
  std::string snapshot(const std::string& repository, const std::string& commit) const;
  std::string lock(const std::string& repository, const std::string& digest) const;

  /// All complete models, by name. What is broken or leads out of the cache is passed over.
  std::vector<CachedModel> models() const;
  /// A complete model; "main" is the only snapshot if nothing says what it is.
  std::optional<CachedModel> find(const ModelName& name, const std::string& revision = "main") const;

  /// Makes the folders that a pull writes to.
  Status prepare(const std::string& repository) const;
  /// Free bytes where the files go.
  Result<int64_t> free_bytes() const;
  /// Shows files, all of which have come, as a snapshot; the last step of a pull.
  Status publish(const std::string& repository, const std::string& revision, const std::string& commit,
                 const std::vector<HubFile>& files) const;
  /// Takes a model away, with the files that no other one uses, and the repository's folder when it was the last.
  Status remove(const CachedModel& model) const;

 private:
  std::string folder(const std::string& repository) const;
  std::vector<std::string> repositories() const;
  std::vector<std::string> commits(const std::string& repository) const;
  std::optional<std::string> commit_of(const std::string& repository, const std::string& revision) const;
  std::vector<HubFile> files(const std::string& snapshot_folder) const;
  std::vector<CachedModel> models_of(const std::string& repository, const std::string& commit) const;
  void sweep(const std::string& repository) const;

  std::string root_;
};

/// Makes a folder and those above it.
Status make_folders(const std::string& path);
/// Replaces a file by this text, all or nothing.
Status replace_file(const std::string& path, std::string_view text);

}  // namespace quern
