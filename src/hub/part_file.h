// PartFile: a file on its way: it is written in several places at once, and remembers across processes what has come.
// Any thread may write different ranges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace quern {

/// Behind the bytes of the file it keeps how much of each range is there, so that one rename finishes it.
class PartFile {
 public:
  /// Opens or makes `path` for a file of `bytes` in ranges of `range_bytes`; what was begun in another way is begun
  /// again.
  static Result<PartFile> open(const std::string& path, int64_t bytes, int64_t range_bytes);

  PartFile() = default;
  PartFile(PartFile&& other) noexcept { swap(other); }
  PartFile& operator=(PartFile&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PartFile();

  int64_t bytes() const { return bytes_; }
  int ranges() const { return static_cast<int>((bytes_ + range_bytes_ - 1) / range_bytes_); }
  int64_t range_begin(int range) const { return range * range_bytes_; }
  int64_t range_size(int range) const;
  /// How many bytes of a range had come when it was last noted.
  Result<int64_t> noted(int range) const;
  Status note(int range, int64_t done) const;
  Status write(int64_t offset, std::string_view text) const;

  /// Its digest, of the kind that `like` is.
  Result<std::string> digest(std::string_view like) const;
  /// All has come: the file gets its name.
  Status finish(const std::string& path);
  /// What has come is worth nothing.
  void discard() const;

 private:
  Status write_layout();
  void swap(PartFile& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(bytes_, other.bytes_);
    std::swap(range_bytes_, other.range_bytes_);
  }

  std::string path_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;
  int64_t range_bytes_ = 1;
};

}  // namespace quern
