// KeptFile: what was measured once and holds true from run to run, in a file of the user's cache folder. Whoever loses
// the file, or a part of it, measures again. Thread: the owner's; processes may share a file.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace quern {

/// Where programs keep what they can make again: $XDG_CACHE_HOME/quern or ~/.cache/quern; empty where neither is known.
std::string cache_folder();

class KeptFile {
 public:
  static constexpr int64_t max_bytes = int64_t{4} << 20;  // a longer file begins anew

  /// Entries count only under the identity that they were kept with. With an empty `folder` nothing is kept.
  KeptFile(std::string folder, const std::string& name, std::string identity);

  /// The newest value, or null.
  const std::string* find(const std::string& key) const;
  /// Key and value are words without white space. A file that cannot be written loses its entries with the process.
  void keep(const std::string& key, const std::string& value);

 private:
  std::string line_of(const std::string& key, const std::string& value) const;
  void read();
  void append(const std::string& line);

  const std::string folder_;
  const std::string path_;
  const std::string identity_;
  bool begins_anew_ = false;
  std::map<std::string, std::string> entries_;
};

}  // namespace quern
