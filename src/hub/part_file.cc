#include "hub/part_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "hub/digest.h"

namespace quern {
namespace {

constexpr int64_t kMark = 0x3170'6e72'6575'7171;  // begins what stands behind the file's bytes
using Layout = std::array<int64_t, 3>;            // the mark, bytes, range_bytes; one number per range follows

Status write_at(int descriptor, const std::string& path, int64_t offset, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::pwrite(descriptor, text.data(), text.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return file_error(path);
    text.remove_prefix(static_cast<size_t>(put));
    offset += put;
  }
  return {};
}

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

template <typename T>
bool read_at(int descriptor, int64_t offset, T* value) {
  return ::pread(descriptor, value, sizeof(T), offset) == static_cast<ssize_t>(sizeof(T));
}

}  // namespace

Result<PartFile> PartFile::open(const std::string& path, int64_t bytes, int64_t range_bytes) {
  PartFile part;
  part.path_ = path;
  part.bytes_ = bytes;
  part.range_bytes_ = std::max<int64_t>(1, range_bytes);
  part.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  struct stat status{};
  if (part.descriptor_ < 0 || ::fstat(part.descriptor_, &status) != 0) return file_error(path);
  if (!S_ISREG(status.st_mode)) return Error{fmt::format("{}: is not a regular file; remove it", path)};
  Layout found{};
  if (!read_at(part.descriptor_, bytes, &found) || found != Layout{kMark, bytes, part.range_bytes_})
    TRY(part.write_layout());
  return part;
}

Status PartFile::write_layout() {
  if (::ftruncate(descriptor_, 0) != 0) return file_error(path_);
  const auto size = bytes_ + static_cast<int64_t>(sizeof(Layout)) + 8 * int64_t{ranges()};
  if (::ftruncate(descriptor_, size) != 0) return file_error(path_);
  return write_at(descriptor_, path_, bytes_, bytes_of(Layout{kMark, bytes_, range_bytes_}));
}

PartFile::~PartFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int64_t PartFile::range_size(int range) const { return std::min(range_bytes_, bytes_ - range_begin(range)); }

Result<int64_t> PartFile::noted(int range) const {
  int64_t done = 0;
  if (!read_at(descriptor_, bytes_ + static_cast<int64_t>(sizeof(Layout)) + 8 * int64_t{range}, &done))
    return file_error(path_);
  return std::clamp<int64_t>(done, 0, range_size(range));
}

Status PartFile::note(int range, int64_t done) const {
  return write_at(descriptor_, path_, bytes_ + static_cast<int64_t>(sizeof(Layout)) + 8 * int64_t{range},
                  bytes_of(done));
}

Status PartFile::write(int64_t offset, std::string_view text) const {
  CHECK(offset >= 0 && offset + static_cast<int64_t>(text.size()) <= bytes_);
  return write_at(descriptor_, path_, offset, text);
}

Result<std::string> PartFile::digest(std::string_view like) const { return file_digest(descriptor_, bytes_, like); }

Status PartFile::finish(const std::string& path) {
  if (::ftruncate(descriptor_, bytes_) != 0 || ::fsync(descriptor_) != 0) return file_error(path_);
  if (std::rename(path_.c_str(), path.c_str()) != 0) return file_error(path);
  return {};
}

void PartFile::discard() const { ::unlink(path_.c_str()); }

}  // namespace quern
