// ModelLibrary: the models of this machine by name, and how to get more of them. Any thread; calls take as long as
// disks and networks do, so none is made on a connection's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quern {

/// A model on the disk. What its files do not say is empty or 0.
struct StoredModel {
  std::string name;            // "ORG/NAME" or "ORG/NAME:QUANT", or what a copy is called: unique in a library
  std::string path;            // what Checkpoint::open takes: a .gguf file or a folder with safetensors
  std::string digest;          // "sha256:" and 64 hex digits, the same for the same files
  std::string format;          // "gguf" or "safetensors"
  std::string family;          // the architecture in its files' own word: "llama", "qwen3"
  std::string parameter_size;  // "135M", "8.03B"
  std::string quantization;    // "Q4_K_M", "BF16", "fp8"
  int64_t parameters = 0;
  int64_t context_length = 0;
  int64_t embedding_length = 0;
  int64_t bytes = 0;       // of all its files
  int64_t modified_s = 0;  // when the newest file came, in seconds since 1970
};

/// What more its files say.
struct ModelDetails {
  StoredModel model;
  std::string license;                    // a name such as "apache-2.0", or the text
  std::string chat_template;              // empty: none
  std::vector<std::string> capabilities;  // Ollama's words: "completion", "tools", "thinking", "embedding"
  Json config;                            // an object: config.json, or a GGUF file's metadata without its long arrays
};

/// How far a pull is; told for one file at a time, several of which may be on their way.
struct PullProgress {
  std::string_view file;    // its name in the repository
  std::string_view digest;  // "sha256:...", empty for files that have none
  int64_t total = 0;        // bytes of this file
  int64_t completed = 0;    // of them on the disk; total: it is there and checked
  int64_t all_total = 0;    // bytes of all files of the pull
  int64_t all_completed = 0;
};

class ModelLibrary {
 public:
  /// False stops the pull: what has come stays, and the next pull goes on from there. Called by one thread at a time,
  /// at most some ten times a second, and once at the end of each file.
  using OnProgress = std::function<bool(const PullProgress& progress)>;

  virtual ~ModelLibrary() = default;

  /// By name.
  virtual Result<std::vector<StoredModel>> list() = 0;
  /// The model of that name; the error says that there is none, and which one is meant most likely. Names that leave
  /// out what only one model can complete are taken: "ORG/NAME" for "ORG/NAME:Q4_K_M", and Ollama's ":latest".
  virtual Result<StoredModel> find(std::string_view name) = 0;
  virtual Result<ModelDetails> show(std::string_view name) = 0;
  /// Brings "ORG/NAME[:FILE or QUANT]" here from the hub, or what is missing of it. A sentence that says what to do
  /// when that cannot be.
  virtual Result<StoredModel> pull(std::string_view name, const OnProgress& on_progress) = 0;
  /// A second name for a model; its files are shared.
  virtual Status copy(std::string_view source, std::string_view destination) = 0;
  /// Takes away the name, and the files that no other name needs.
  virtual Status remove(std::string_view name) = 0;
};

}  // namespace quern
