#include "hub/cache.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <set>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"

namespace quern {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";
constexpr size_t kMostFiles = 100'000;  // of a snapshot; more is no model

Error failure_of(const std::string& path, const std::error_code& failure) {
  return Error{fmt::format("{}: {}", path, failure.message())};
}

/// Names in a folder, sorted; none when it cannot be read.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string own_suffix() { return fmt::format(".{}.new", ::getpid()); }

/// Whether a real path lies below a real folder.
bool is_below(const fs::path& path, const fs::path& folder) { return path.native().starts_with(folder.native() + "/"); }

}  // namespace

Result<std::optional<FileLock>> FileLock::try_lock(const std::string& path) {
  FileLock lock;
  lock.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (lock.descriptor_ < 0) return file_error(path);
  if (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) == 0) return std::optional<FileLock>(std::move(lock));
  if (errno == EWOULDBLOCK || errno == EINTR) return std::optional<FileLock>();
  return file_error(path);
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status make_folders(const std::string& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  return failure ? Status(failure_of(path, failure)) : Status();
}

Status replace_file(const std::string& path, std::string_view text) {
  const std::string fresh = path + own_suffix();
  {
    std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    if (!out.flush()) return Error{fmt::format("{}: cannot be written", fresh)};
  }
  return std::rename(fresh.c_str(), path.c_str()) == 0 ? Status() : Status(file_error(path));
}

std::string HubCache::folder(const std::string& repository) const {
  const size_t slash = repository.find('/');
  return fmt::format("{}/{}{}--{}", root_, kPrefix, repository.substr(0, slash), repository.substr(slash + 1));
}
std::string HubCache::blob(const std::string& repository, const std::string& digest) const {
  return fmt::format("{}/blobs/{}", folder(repository), digest);
}
std::string HubCache::snapshot(const std::string& repository, const std::string& commit) const {
  return fmt::format("{}/snapshots/{}", folder(repository), commit);
}
std::string HubCache::lock(const std::string& repository, const std::string& digest) const {
  const std::string own = folder(repository);
  return fmt::format("{}/.locks/{}/{}.lock", root_, own.substr(own.rfind('/') + 1), digest);
}

std::vector<std::string> HubCache::repositories() const {
  std::vector<std::string> all;
  for (const std::string& name : names_in(root_)) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string rest = name.substr(kPrefix.size());
    const size_t gap = rest.find("--");
    if (gap == std::string::npos) continue;
    const auto parsed = parse_model_name(rest.substr(0, gap) + "/" + rest.substr(gap + 2));
    if (parsed.ok() && parsed->variant.empty()) all.push_back(parsed->repository);
  }
  return all;
}

std::vector<std::string> HubCache::commits(const std::string& repository) const {
  std::vector<std::string> all = names_in(folder(repository) + "/snapshots");
  std::erase_if(all, [](const std::string& name) { return !is_digest(name); });
  return all;
}

std::optional<std::string> HubCache::commit_of(const std::string& repository, const std::string& revision) const {
  const std::vector<std::string> all = commits(repository);
  if (std::find(all.begin(), all.end(), revision) != all.end()) return revision;
  if (!is_revision(revision)) return std::nullopt;
  const std::string ref = fmt::format("{}/refs/{}", folder(repository), revision);
  if (const auto text = read_file(ref, 256); text.ok()) {
    const std::string commit = text->substr(0, text->find_first_of(" \r\n"));
    if (is_digest(commit)) return commit;
  }
  if (revision == "main" && all.size() == 1) return all.front();
  return std::nullopt;
}

std::vector<HubFile> HubCache::files(const std::string& snapshot_folder) const {
  std::vector<HubFile> found;
  std::error_code failure;
  const fs::path root = fs::canonical(root_, failure);
  if (failure) return found;
  for (fs::recursive_directory_iterator it(snapshot_folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    if (it.depth() > 6 || found.size() > kMostFiles) return {};
    std::error_code broken;
    if (!it->is_regular_file(broken) || broken) continue;
    const fs::path real = fs::canonical(it->path(), broken);
    if (broken || !is_below(real, root)) continue;
    HubFile file;
    file.path = it->path().lexically_relative(snapshot_folder).string();
    file.bytes = static_cast<int64_t>(fs::file_size(real, broken));
    const fs::path link = it->is_symlink(broken) ? fs::read_symlink(it->path(), broken) : fs::path();
    if (is_digest(link.filename().string())) file.digest = link.filename().string();
    if (!broken && is_safe_path(file.path)) found.push_back(std::move(file));
  }
  std::sort(found.begin(), found.end(), [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  return found;
}

std::vector<CachedModel> HubCache::models_of(const std::string& repository, const std::string& commit) const {
  const std::string at = snapshot(repository, commit);
  std::vector<CachedModel> all;
  for (ModelFiles& model : models_among(files(at)))
    all.push_back({ModelName{repository, model.variant}, commit, at, std::move(model)});
  return all;
}

std::vector<CachedModel> HubCache::models() const {
  std::vector<CachedModel> all;
  for (const std::string& repository : repositories()) {
    auto commit = commit_of(repository, "main");
    const std::vector<std::string> known = commits(repository);
    if (!commit && !known.empty()) commit = known.back();
    if (!commit) continue;
    for (CachedModel& model : models_of(repository, *commit)) all.push_back(std::move(model));
  }
  return all;
}

std::optional<CachedModel> HubCache::find(const ModelName& name, const std::string& revision) const {
  const auto commit = commit_of(name.repository, revision);
  if (!commit) return std::nullopt;
  const std::string at = snapshot(name.repository, *commit);
  auto chosen = choose_model(name, files(at));
  if (!chosen.ok()) return std::nullopt;
  return CachedModel{ModelName{name.repository, chosen->variant}, *commit, at, std::move(*chosen)};
}

Status HubCache::prepare(const std::string& repository) const {
  const std::string own = folder(repository);
  for (const std::string& path : {own + "/blobs", own + "/refs", own + "/snapshots", lock(repository, "x")}) {
    TRY(make_folders(path.ends_with(".lock") ? path.substr(0, path.rfind('/')) : path));
    std::error_code failure;
    if (fs::is_symlink(fs::path(path), failure) || fs::is_symlink(fs::path(own), failure))
      return Error{fmt::format("{}: is a link; nothing is written through it", path)};
  }
  return {};
}

Result<int64_t> HubCache::free_bytes() const {
  struct statvfs status{};
  if (::statvfs(root_.c_str(), &status) != 0) return file_error(root_);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

Status HubCache::publish(const std::string& repository, const std::string& revision, const std::string& commit,
                         const std::vector<HubFile>& files) const {
  const std::string at = snapshot(repository, commit);
  for (const HubFile& file : files) {
    const std::string link = at + "/" + file.path;
    TRY(make_folders(link.substr(0, link.rfind('/'))));
    std::string target = "../../blobs/" + file.digest;
    for (const char c : file.path) {
      if (c == '/') target.insert(0, "../");
    }
    const std::string fresh = link + own_suffix();
    ::unlink(fresh.c_str());
    if (::symlink(target.c_str(), fresh.c_str()) != 0 || std::rename(fresh.c_str(), link.c_str()) != 0)
      return file_error(link);
  }
  if (revision == commit) return {};
  const std::string ref = fmt::format("{}/refs/{}", folder(repository), revision);
  TRY(make_folders(ref.substr(0, ref.rfind('/'))));
  return replace_file(ref, commit);
}

Status HubCache::remove(const CachedModel& model) const {
  const std::string& repository = model.name.repository;
  std::set<std::string> kept;  // what the other models of the repository read
  for (const CachedModel& other : models_of(repository, model.commit)) {
    if (other.name.variant == model.name.variant) continue;
    for (const HubFile& file : other.files.files) kept.insert(file.path);
  }
  std::error_code failure;
  if (kept.empty()) {
    const std::string own = folder(repository);
    fs::remove_all(own, failure);
    return failure ? Status(failure_of(own, failure)) : Status();
  }
  for (const std::string& commit : commits(repository)) {
    for (const HubFile& file : model.files.files) {
      const std::string path = snapshot(repository, commit) + "/" + file.path;
      if (!kept.contains(file.path)) fs::remove(path, failure);
      if (failure) return failure_of(path, failure);
    }
  }
  sweep(repository);
  return {};
}

/// Removes the blobs that no snapshot names.
void HubCache::sweep(const std::string& repository) const {
  std::set<std::string> named;
  std::error_code failure;
  for (const std::string& commit : commits(repository)) {
    fs::recursive_directory_iterator it(snapshot(repository, commit), failure), end;
    for (; !failure && it != end; it.increment(failure)) {
      std::error_code no_link;
      const fs::path target = fs::read_symlink(it->path(), no_link);
      if (!no_link) named.insert(target.filename().string());
    }
  }
  if (failure) return;
  const std::string blobs = folder(repository) + "/blobs";
  for (const std::string& name : names_in(blobs)) {
    if (is_digest(name) && !named.contains(name)) fs::remove(blobs + "/" + name, failure);
  }
}

}  // namespace quern
