// ServeOptions: what `quern serve` was told, by flags and by its configuration file. Thread: main.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/serve/models.h"
#include "server/models/keeper.h"

namespace quern {

struct ServeOptions {
  ServedModelsOptions models;    // with the server's
  std::vector<NamedPath> paths;  // of the models
  KeeperOptions keeper;
  std::vector<ApiKey> command_line_keys;
  std::string api_keys_file;  // read again on SIGHUP
  double shutdown_timeout_s = 30;
  double shutdown_grace_s = 0;
  bool dry_run = false;

  ServerOptions& server() { return models.server; }
};

/// The keys of the command line and of the file.
Result<std::vector<ApiKey>> all_keys(const ServeOptions& options);

/// `*help`: it was asked for and has been printed.
Result<ServeOptions> parse_serve_options(std::span<char* const> arguments, bool* help);

}  // namespace quern
