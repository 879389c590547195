#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace quern {
namespace {

/// A file descriptor that closes itself.
struct Descriptor {
  explicit Descriptor(const std::string& path) : value(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  const int value;
};

Result<int64_t> regular_size(const Descriptor& file, const std::string& path) {
  struct stat status {};
  if (file.value < 0 || ::fstat(file.value, &status) != 0) return file_error(path);
  if (S_ISDIR(status.st_mode)) return Error{fmt::format("{}: is a directory, expected a file", path)};
  if (!S_ISREG(status.st_mode)) return Error{fmt::format("{}: is not a regular file", path)};
  return int64_t{status.st_size};
}

}  // namespace

bool file_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

Error file_error(const std::string& path) { return Error{fmt::format("{}: {}", path, std::strerror(errno))}; }

Result<std::string> read_file(const std::string& path, int64_t max_bytes) {
  const Descriptor file(path);
  ASSIGN_OR_RETURN(const int64_t size, regular_size(file, path));
  if (size > max_bytes) return Error{fmt::format("{}: {} bytes, more than the {} allowed", path, size, max_bytes)};
  std::string text(static_cast<size_t>(size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.value, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(path);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const Descriptor file(path);
  ASSIGN_OR_RETURN(const int64_t size, regular_size(file, path));
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_ = static_cast<size_t>(size);
  if (size == 0) return mapped;
  void* data = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (data == MAP_FAILED) {
    mapped.size_ = 0;
    return file_error(path);
  }
  mapped.data_ = static_cast<const std::byte*>(data);
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop(const std::byte* begin, size_t size) const {
  constexpr uintptr_t page = 4096;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(begin) + size) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace quern
