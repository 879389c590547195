#include "base/file.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

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
  int release() { return std::exchange(value, -1); }

  int value;
};

constexpr uintptr_t page_bytes = 4096;

/// The maps of this process, for the signal handler; a free place begins at 0.
struct Mapping {
  std::atomic<uintptr_t> begin = 0;
  std::atomic<uintptr_t> end = 0;
};
std::array<Mapping, 4096> mappings;
struct sigaction previous_handler{};

/// A page behind the new end of a file that was cut short is read: it becomes a page of zeros.
void on_bus_error(int number, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Mapping& mapping : mappings) {
    if (info->si_code <= 0 || address < mapping.begin || address >= mapping.end) continue;
    const int saved = errno;
    void* page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
    void* zeros = ::mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = saved;
    if (zeros != MAP_FAILED) return;
  }
  // Not ours: the instruction faults again, under the handler that was there before; a signal that was sent does not.
  ::sigaction(number, &previous_handler, nullptr);
  if (info->si_code <= 0) ::raise(number);
}

void catch_bus_errors() {
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &previous_handler);
}

bool remember(uintptr_t begin, size_t size) {
  static std::once_flag once;
  std::call_once(once, catch_bus_errors);
  for (Mapping& mapping : mappings) {
    uintptr_t nobody = 0;
    if (!mapping.begin.compare_exchange_strong(nobody, begin)) continue;
    mapping.end = begin + size;
    return true;
  }
  return false;
}

void forget(uintptr_t begin) {
  for (Mapping& mapping : mappings) {
    if (mapping.begin != begin) continue;
    mapping.end = 0;
    mapping.begin = 0;
  }
}

std::array<int64_t, 2> last_change(const struct stat& status) {
  return {int64_t{status.st_mtim.tv_sec}, int64_t{status.st_mtim.tv_nsec}};
}

Result<struct stat> regular_status(const Descriptor& file, const std::string& path) {
  struct stat status{};
  if (file.value < 0 || ::fstat(file.value, &status) != 0) return file_error(path);
  if (S_ISDIR(status.st_mode)) return Error{fmt::format("{}: is a directory, expected a file", path)};
  if (!S_ISREG(status.st_mode)) return Error{fmt::format("{}: is not a regular file", path)};
  return status;
}

}  // namespace

bool file_exists(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

Error file_error(const std::string& path) { return Error{fmt::format("{}: {}", path, std::strerror(errno))}; }

Result<std::string> read_file(const std::string& path, int64_t max_bytes) {
  const Descriptor file(path);
  ASSIGN_OR_RETURN(const struct stat status, regular_status(file, path));
  const int64_t size = status.st_size;
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
  Descriptor file(path);
  ASSIGN_OR_RETURN(const struct stat status, regular_status(file, path));
  MappedFile mapped;
  mapped.path_ = path;
  mapped.changed_ = last_change(status);
  if (status.st_size != 0) {
    const auto size = static_cast<size_t>(status.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
    if (data == MAP_FAILED) return file_error(path);
    mapped.data_ = static_cast<const std::byte*>(data);
    mapped.size_ = size;
    if (!remember(reinterpret_cast<uintptr_t>(data), size)) {
      return Error{fmt::format("{}: too many files are open at once", path)};
    }
  }
  mapped.descriptor_ = file.release();
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    forget(reinterpret_cast<uintptr_t>(data_));
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status MappedFile::check_unchanged() const {
  if (descriptor_ < 0) return {};
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) return file_error(path_);
  if (static_cast<size_t>(status.st_size) == size_ && last_change(status) == changed_) return {};
  return Error{fmt::format("{}: the file changed while it was read", path_)};
}

void MappedFile::drop(const std::byte* begin, size_t size) const {
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page_bytes - 1) / page_bytes * page_bytes;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(begin) + size) / page_bytes * page_bytes;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace quern
