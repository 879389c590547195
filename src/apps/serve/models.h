// ServedModels: the models of `quern serve`, made of files when the server asks for them. Thread: main, then the
// server's loader.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/instance.h"
#include "server/models/host.h"

namespace quern {

/// What every model of the server is made with; of the instance all but `model`.
struct ServedModelsOptions {
  InstanceOptions instance;
  ServerOptions server;
  Json generation;  // members take the place of those of generation_config.json
  std::string tool_call_parser;
  std::string reasoning_parser;
  std::vector<std::string> pinned;
  int64_t memory_bytes = 0;  // of all models together; 0: what is free
};

/// A model that somebody named: "PATH", or "NAME=PATH".
struct NamedPath {
  std::string name;  // "": as its files say
  std::string path;
  bool found = false;  // in a folder: passed over when it is no model that can be served
};
NamedPath named_path(const std::string& text);
/// The .gguf files and model folders in `folder`, by name.
Result<std::vector<NamedPath>> models_in(const std::string& folder);

class ServedModels final : public ModelHost {
 public:
  /// One model is known under all of `options.server.model_names`, if there are any.
  static Result<std::unique_ptr<ServedModels>> open(ServedModelsOptions options, std::vector<NamedPath> models);

  const std::vector<ModelCard>& cards() const { return cards_; }
  /// For all of them; 0 for a single one, which takes what it needs.
  int64_t memory_bytes() const { return memory_bytes_; }

  Result<ModelParts> load(const std::string& name) override;
  /// What the last load() has made, for people.
  const std::string& description() const { return description_; }

 private:
  explicit ServedModels(ServedModelsOptions options) : options_(std::move(options)) {}
  Status choose_memory(const std::vector<NamedPath>& models);
  Status add(const NamedPath& model, size_t count);

  ServedModelsOptions options_;
  int64_t memory_bytes_ = 0;
  std::vector<ModelCard> cards_;
  std::map<std::string, InstanceOptions> instances_;  // by the first name of the card
  std::string description_;
};

}  // namespace quern
