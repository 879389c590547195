// Files: whole reads, and read-only memory maps. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace quern {

bool file_exists(const std::string& path);
bool is_directory(const std::string& path);

/// The whole file; refuses directories and anything above `max_bytes`.
Result<std::string> read_file(const std::string& path, int64_t max_bytes = int64_t{1} << 30);

/// Why the last system call on `path` failed, as a sentence: "PATH: No such file or directory".
Error file_error(const std::string& path);

/// A file mapped for reading. Regular files only, so that nothing blocks or is endless. Who cuts the file short
/// meanwhile makes its end read as zeros, which check_unchanged() tells, and does not end the process.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    swap(other);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  /// Tells the kernel that this part is not needed again, so that it does not count twice while loading.
  void drop(const std::byte* begin, size_t size) const;
  /// An error when the file was written or cut short since it was opened: what was read is then worth nothing.
  Status check_unchanged() const;

 private:
  void swap(MappedFile& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(changed_, other.changed_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  std::string path_;
  int descriptor_ = -1;
  std::array<int64_t, 2> changed_{};  // when it was last written, in seconds and nanoseconds
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace quern
