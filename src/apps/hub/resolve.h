// From what a person calls a model to its files: a path, the built-in default, a model of the library, or one that is
// pulled first. Thread: main.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace quern {

struct FoundModel {
  std::string path;  // what Checkpoint::open takes
  std::string name;  // what clients may call it
};

/// `model` is empty for the default one. `revision` is a branch, tag or commit of the hub; "" is main. A pull shows
/// its progress. `folder` is where models of hubs are kept; "" is that of the environment.
Result<FoundModel> find_model(const std::string& model, const std::string& revision, const std::string& folder = "");

/// Whether a word of the command line names a model: a file, a model of the library, or one that a hub may have.
bool names_model(const std::string& word);

/// Path of the built-in default model, or how to get it.
Result<std::string> default_model_path();

}  // namespace quern
