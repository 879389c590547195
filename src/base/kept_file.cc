#include "base/kept_file.h"

#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sstream>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "base/file.h"

namespace quern {
namespace {

/// FNV-1a, which tells damage and other identities apart.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

}  // namespace

std::string cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::string(cache) + "/quern";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? std::string(home) + "/.cache/quern" : std::string();
}

KeptFile::KeptFile(std::string folder, const std::string& name, std::string identity)
    : folder_(std::move(folder)), path_(folder_ + "/" + name), identity_(std::move(identity)) {
  if (!folder_.empty()) read();
}

const std::string* KeptFile::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void KeptFile::keep(const std::string& key, const std::string& value) {
  entries_[key] = value;
  if (!folder_.empty()) append(line_of(key, value));
}

/// A line stands for itself, so that damage costs no other entry.
std::string KeptFile::line_of(const std::string& key, const std::string& value) const {
  return fmt::format("{:016x} {} {}\n", hash_of(fmt::format("{}\n{}\n{}", identity_, key, value)), key, value);
}

void KeptFile::read() {
  const auto text = read_file(path_, max_bytes);
  if (!text.ok()) {
    begins_anew_ = true;
    return;
  }
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, key, value;
    if (words >> hash >> key >> value && line_of(key, value) == line + '\n') entries_[key] = value;
  }
}

/// In one write, so that the lines of several processes do not mix.
void KeptFile::append(const std::string& line) {
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  const int how = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | (begins_anew_ ? O_TRUNC : 0);
  const int descriptor = ::open(path_.c_str(), how, 0644);
  if (descriptor < 0) return;
  begins_anew_ = false;
  // A line that was cut short by a full disk is damage that the next reader skips.
  [[maybe_unused]] const ssize_t written = ::write(descriptor, line.data(), line.size());
  ::close(descriptor);
}

}  // namespace quern
