// HubLibrary: the models of the hub's cache and of Quern's own folder. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/cache.h"
#include "hub/client.h"
#include "hub/pull.h"
#include "server/model_library.h"

namespace quern {

/// $QUERN_MODELS, else quern/models in the user's cache folder: the default model and copies.
std::string models_folder();

class HubLibrary final : public ModelLibrary {
 public:
  HubLibrary(HubOptions hub, std::string folder) : hub_(std::move(hub)), folder_(std::move(folder)) {}
  /// As the environment says.
  HubLibrary() : HubLibrary(hub_options_from_environment(), models_folder()) {}

  Result<std::vector<StoredModel>> list() override;
  Result<StoredModel> find(std::string_view name) override;
  Result<ModelDetails> show(std::string_view name) override;
  Result<StoredModel> pull(std::string_view name, const OnProgress& on_progress) override;
  Status copy(std::string_view source, std::string_view destination) override;
  Status remove(std::string_view name) override;

 private:
  /// A model by name: in the cache, or a file or folder of ours.
  struct Entry {
    std::string name;
    std::string path;
    std::optional<CachedModel> cached;
  };
  std::vector<Entry> entries() const;
  std::vector<Entry> own_entries() const;
  Result<Entry> entry(std::string_view name) const;
  static Result<ModelDetails> details_of(const Entry& entry);

  const HubOptions hub_;
  const std::string folder_;
};

/// Whether a library may call a model so: letters, digits and - _ . with at most one '/' and one ':'.
bool is_library_name(std::string_view name);

}  // namespace quern
