#include "apps/hub/library.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/hub/inspect.h"
#include "base/file.h"
#include "base/flags.h"
#include "hub/digest.h"

namespace quern {
namespace {

namespace fs = std::filesystem;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

/// The folder of a copy, and back: "me/model:v1" is me--model@v1.
std::string folder_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '/')
      out += "--";
    else
      out += c == ':' ? '@' : c;
  }
  return out;
}
std::string name_of_folder(std::string name) {
  if (const size_t gap = name.find("--"); gap != std::string::npos) name.replace(gap, 2, "/");
  std::replace(name.begin(), name.end(), '@', ':');
  return name;
}

/// The model that a folder holds: itself with a config.json, else its only GGUF file, or the first part of one.
std::optional<std::string> model_in(const std::string& folder) {
  if (file_exists(folder + "/config.json")) return folder;
  std::vector<HubFile> files;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure))
    files.push_back({it->path().filename().string(), -1, ""});
  const std::vector<ModelFiles> models = models_among(files);
  if (models.size() != 1) return std::nullopt;
  return folder + "/" + models.front().entry;
}

/// All files that a model at `path` consists of.
std::vector<std::string> files_of(const std::string& path) {
  std::vector<std::string> files;
  std::error_code failure;
  if (is_directory(path)) {
    for (fs::recursive_directory_iterator it(path, failure), end; !failure && it != end; it.increment(failure)) {
      std::error_code unreadable;
      if (it->is_regular_file(unreadable)) files.push_back(it->path().lexically_relative(path).string());
    }
  } else {
    const PartName whole = part_name(path.substr(path.rfind('/') + 1));
    for (int i = 1; i <= whole.count; ++i) {
      files.push_back(whole.count == 1 ? path.substr(path.rfind('/') + 1)
                                       : fmt::format("{}-{:05}-of-{:05}.gguf", whole.stem, i, whole.count));
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string folder_of(const std::string& path) { return is_directory(path) ? path : path.substr(0, path.rfind('/')); }

/// The same for the same files: of what the cache knows of them, else of their sizes and times.
std::string digest_of(const std::string& path, const std::optional<CachedModel>& cached) {
  std::string text;
  if (cached) {
    if (cached->files.files.size() == 1 && cached->files.files[0].digest.size() == 64)
      return "sha256:" + cached->files.files[0].digest;
    for (const HubFile& file : cached->files.files) text += fmt::format("{} {}\n", file.path, file.digest);
  } else {
    for (const std::string& name : files_of(path)) {
      struct stat status{};
      ::stat((folder_of(path) + "/" + name).c_str(), &status);
      text += fmt::format("{} {} {}\n", name, status.st_size, status.st_mtim.tv_sec);
    }
  }
  return "sha256:" + text_digest(text);
}

int64_t newest_of(const std::string& path) {
  int64_t newest = 0;
  for (const std::string& name : files_of(path)) {
    struct stat status{};
    if (::stat((folder_of(path) + "/" + name).c_str(), &status) == 0)
      newest = std::max<int64_t>(newest, status.st_mtim.tv_sec);
  }
  return newest;
}

/// A second folder of the same files, which share their blocks on the disk.
Status link_files(const std::string& path, const std::string& into) {
  for (const std::string& name : files_of(path)) {
    std::error_code failure;
    const fs::path real = fs::canonical(folder_of(path) + "/" + name, failure);
    const fs::path fresh = into + "/" + name;
    if (!failure) fs::create_directories(fresh.parent_path(), failure);
    if (!failure) fs::create_hard_link(real, fresh, failure);
    if (failure) {
      return Error{fmt::format("{}: cannot share {}: {}; the cache and $QUERN_MODELS have to be on one disk", into,
                               real.string(), failure.message())};
    }
  }
  return {};
}

}  // namespace

std::string models_folder() {
  const char* models = std::getenv("QUERN_MODELS");
  if (models != nullptr) return models;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  return (cache != nullptr ? std::string(cache) : std::string(home != nullptr ? home : "") + "/.cache") +
         "/quern/models";
}

bool is_library_name(std::string_view name) {
  if (name.empty() || name.size() > 200 || name.find("--") != std::string_view::npos) return false;
  const auto good = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.' || c == '/' || c == ':';
  };
  const bool odd = name.front() == '.' || name.front() == '/' || name.front() == ':' || name.front() == '-' ||
                   name.find("/.") != std::string_view::npos || name.back() == '/' || name.back() == ':';
  return !odd && std::all_of(name.begin(), name.end(), good) && std::count(name.begin(), name.end(), '/') <= 1 &&
         std::count(name.begin(), name.end(), ':') <= 1;
}

std::vector<HubLibrary::Entry> HubLibrary::own_entries() const {
  std::vector<Entry> all;
  std::error_code failure;
  for (fs::directory_iterator it(folder_, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string path = it->path().string(), name = it->path().filename().string();
    if (name.starts_with('.')) continue;
    if (is_directory(path)) {
      if (const auto model = model_in(path)) all.push_back({name_of_folder(name), *model, {}});
    } else if (name.ends_with(".gguf") && part_name(name).number == 1) {
      all.push_back({part_name(name).stem, path, {}});
    }
  }
  return all;
}

std::vector<HubLibrary::Entry> HubLibrary::entries() const {
  std::vector<Entry> all = own_entries();
  std::set<std::string> names;
  for (const Entry& own : all) names.insert(own.name);
  for (CachedModel& model : HubCache(hub_.cache).models()) {
    std::string name = model.name.text(), path = model.path();
    if (names.insert(name).second) all.push_back({std::move(name), std::move(path), std::move(model)});
  }
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return all;
}

Result<HubLibrary::Entry> HubLibrary::entry(std::string_view name) const {
  std::string wanted = lower(name);
  if (wanted.ends_with(":latest")) wanted.resize(wanted.size() - 7);
  const std::vector<Entry> all = entries();
  for (const Entry& known : all) {
    if (lower(known.name) == wanted) return known;
  }
  const auto parsed = parse_model_name(name);
  if (parsed.ok()) {
    if (auto cached = HubCache(hub_.cache).find(*parsed)) return Entry{cached->name.text(), cached->path(), cached};
    for (const Entry& known : all) {
      if (known.cached && lower(known.cached->name.repository) == lower(parsed->repository) &&
          (parsed->variant.empty() || lower(known.cached->name.variant) == lower(parsed->variant)))
        return known;
    }
  }
  std::vector<std::string_view> names;
  for (const Entry& known : all) names.push_back(known.name);
  const std::string_view close = nearest(name, names);
  return Error{fmt::format("there is no model '{}' here; {}", name,
                           close.empty() ? std::string("quern list shows what there is, quern pull brings more")
                                         : fmt::format("did you mean {}?", close))};
}

Result<ModelDetails> HubLibrary::details_of(const Entry& entry) {
  ASSIGN_OR_RETURN(ModelDetails details, inspect_model(entry.path));
  StoredModel& model = details.model;
  model.name = entry.name;
  model.digest = digest_of(entry.path, entry.cached);
  model.modified_s = newest_of(entry.path);
  if (entry.cached) {
    model.bytes = 0;
    for (const HubFile& file : entry.cached->files.files) model.bytes += file.bytes;
  }
  return details;
}

Result<std::vector<StoredModel>> HubLibrary::list() {
  std::vector<StoredModel> all;
  for (const Entry& known : entries()) {
    auto details = details_of(known);
    if (details.ok()) all.push_back(std::move(details->model));
  }
  return all;
}

Result<StoredModel> HubLibrary::find(std::string_view name) {
  ASSIGN_OR_RETURN(const Entry known, entry(name));
  ASSIGN_OR_RETURN(ModelDetails details, details_of(known));
  return std::move(details.model);
}

Result<ModelDetails> HubLibrary::show(std::string_view name) {
  ASSIGN_OR_RETURN(const Entry known, entry(name));
  return details_of(known);
}

Result<StoredModel> HubLibrary::pull(std::string_view name, const OnProgress& on_progress) {
  ASSIGN_OR_RETURN(const ModelName parsed, parse_model_name(name));
  const OnFileProgress tell = [&](const FileProgress& file) {
    const std::string digest = file.digest.size() == 64 ? "sha256:" + file.digest : "";
    return !on_progress ||
           on_progress({file.file, digest, file.total, file.completed, file.all_total, file.all_completed});
  };
  ASSIGN_OR_RETURN(CachedModel model, pull_model(hub_, parsed, "main", tell));
  Entry pulled{model.name.text(), model.path(), std::move(model)};
  ASSIGN_OR_RETURN(ModelDetails details, details_of(pulled));
  return std::move(details.model);
}

Status HubLibrary::copy(std::string_view source, std::string_view destination) {
  if (!is_library_name(destination)) {
    return Error{fmt::format("'{}' is no name for a model: use letters, digits and - _ . with at most one / and one :",
                             destination)};
  }
  if (destination.ends_with(":latest")) destination.remove_suffix(7);
  ASSIGN_OR_RETURN(const Entry from, entry(source));
  for (const Entry& known : entries()) {
    if (known.name == destination) return Error{fmt::format("there is a model '{}' already", destination)};
  }
  const std::string into = folder_ + "/" + folder_name(destination);
  const std::string fresh = fmt::format("{}/.{}.{}", folder_, folder_name(destination), ::getpid());
  std::error_code ignored;
  fs::remove_all(fresh, ignored);
  TRY(make_folders(fresh));
  const Status linked = link_files(from.path, fresh);
  if (linked.ok() && std::rename(fresh.c_str(), into.c_str()) == 0) return {};
  const Status failed = linked.ok() ? Status(file_error(into)) : linked;
  fs::remove_all(fresh, ignored);
  return failed;
}

Status HubLibrary::remove(std::string_view name) {
  ASSIGN_OR_RETURN(const Entry known, entry(name));
  if (known.cached) return HubCache(hub_.cache).remove(*known.cached);
  std::error_code failure;
  const std::string whole = folder_ + "/" + folder_name(known.name);
  if (is_directory(whole)) {
    fs::remove_all(whole, failure);
  } else {
    for (const std::string& file : files_of(known.path)) fs::remove(folder_of(known.path) + "/" + file, failure);
  }
  return failure ? Status(Error{fmt::format("{}: {}", known.path, failure.message())}) : Status();
}

}  // namespace quern
