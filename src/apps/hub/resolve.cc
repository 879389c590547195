#include "apps/hub/resolve.h"

#include <fmt/format.h>

#include "apps/hub/library.h"
#include "apps/hub/pull_bar.h"
#include "base/file.h"

namespace quern {
namespace {

/// "dir/model.gguf" serves as "model", "dir/name/" as "name".
std::string name_of_path(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  path = path.substr(path.find_last_of('/') + 1);
  return path.ends_with(".gguf") ? path.substr(0, path.size() - 5) : path;
}

HubOptions hub_options(const std::string& folder) {
  HubOptions options = hub_options_from_environment();
  if (!folder.empty()) options.cache = folder;
  return options;
}

Result<FoundModel> pull(const HubOptions& options, const ModelName& name, const std::string& revision) {
  PullBar bar(false);
  if (!options.offline) fmt::print(stderr, "{} is not here yet: pulling it from {}\n", name.text(), options.endpoint);
  ASSIGN_OR_RETURN(const CachedModel model, pull_model(options, name, revision, [&](const FileProgress& progress) {
                     bar.show(progress);
                     return true;
                   }));
  return FoundModel{model.path(), model.name.text()};
}

}  // namespace

Result<FoundModel> find_model(const std::string& model, const std::string& revision, const std::string& folder) {
  if (model.empty()) {
    ASSIGN_OR_RETURN(const std::string path, default_model_path());
    return FoundModel{path, name_of_path(path)};
  }
  if (file_exists(model)) return FoundModel{model, name_of_path(model)};
  const auto parsed = parse_model_name(model);
  const std::string wanted = revision.empty() ? "main" : revision;
  const HubOptions hub = hub_options(folder);
  if (parsed.ok()) {
    if (auto cached = HubCache(hub.cache).find(*parsed, wanted)) return FoundModel{cached->path(), cached->name.text()};
  }
  if (revision.empty() && is_library_name(model)) {
    if (auto stored = HubLibrary().find(model); stored.ok()) return FoundModel{stored->path, stored->name};
  }
  if (!parsed.ok() && model.find('/') == std::string::npos && !model.ends_with(".gguf"))
    return Error{
        fmt::format("there is no file, folder or model '{}' here; quern list shows the models, quern pull ORG/NAME "
                    "brings one from a hub",
                    model)};
  if (!parsed.ok() || model.ends_with(".gguf"))
    return FoundModel{model, name_of_path(model)};  // opening it says what is wrong
  return pull(hub, *parsed, wanted);
}

bool names_model(const std::string& word) {
  return file_exists(word) || word.ends_with(".gguf") || parse_model_name(word).ok() ||
         (is_library_name(word) && HubLibrary().find(word).ok());
}

Result<std::string> default_model_path() {
  const std::string path = models_folder() + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (file_exists(path)) return path;
  return Error{fmt::format("the built-in default model is not in {}; fetch it with tools/fetch_model, or name a model",
                           models_folder())};
}

}  // namespace quern
