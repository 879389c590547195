// Checkpoint: a model's files, opened and checked: tensors by name, configuration, tokenizer and template texts.
// Immutable once opened; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/weight.h"

namespace quern {

/// A tensor as the file spells it; the bytes are mapped from the file.
struct StoredTensor {
  std::string name;
  std::string type;            // the file's own word: "Q4_1", "BF16", ...
  std::vector<int64_t> shape;  // outermost first: a matrix is [rows, cols]
  int rope_heads = 0;          // > 0: the file keeps the rows of each of these heads as rotary pairs (2i, 2i+1); row
                               // order is to become (i, i + d/2): new row i is old 2i, new row d/2 + i is old 2i + 1
  std::span<const std::byte> bytes;
  std::span<const std::byte> scales = {};  // where a type keeps them apart, row by row
};

/// The vocabulary inside a GGUF file (`tokenizer.ggml.*`), as it is there.
struct StoredVocabulary {
  std::string model, pre, chat_template;
  std::vector<std::pair<std::string, std::string>> named_templates;  // names and texts, sorted
  std::vector<std::string> tokens, merges;
  std::vector<float> scores;
  std::vector<int32_t> types;
  std::string charsmap;  // precompiled_charsmap
  std::string name;      // general.name
  std::optional<int32_t> bos, eos, eot, eom, unknown, padding, separator, cls, mask;
  std::optional<int32_t> fim_prefix, fim_suffix, fim_middle;  // of texts into which something is filled in
  std::optional<bool> add_bos, add_eos, add_separator, add_space_prefix, remove_extra_spaces;
  std::optional<bool> lowercase, strip_accents;  // of tokenizer.ggml.normalizer
};

enum class CheckpointKind : uint8_t { gguf, safetensors };

class Checkpoint {
 public:
  /// A .gguf file, or a directory with config.json and *.safetensors.
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& path);
  virtual ~Checkpoint() = default;

  virtual CheckpointKind kind() const = 0;
  virtual const std::string& path() const = 0;
  /// nullptr when there is none of that name.
  virtual const StoredTensor* find(std::string_view name) const = 0;
  virtual std::span<const StoredTensor> tensors() const = 0;
  /// config.json. A GGUF file speaks the same language: its metadata is translated to the keys of config.json
  /// ("architectures", "hidden_size", ...), its tensors to the names of Hugging Face.
  virtual const Json& config() const = 0;
  /// generation_config.json, or the GGUF keys that say the same; a null Json when there is none.
  virtual const Json& generation_config() const = 0;
  /// Reads the vocabulary of a GGUF file; nothing for safetensors (the directory has tokenizer.json).
  virtual Result<std::optional<StoredVocabulary>> vocabulary() const = 0;
  /// These bytes of a tensor are not read again: their pages need not count twice while a model is loaded.
  virtual void drop(std::span<const std::byte> bytes) const = 0;
  /// A checkpoint without weights (invented_checkpoint): any tensor is there, with random values in this format.
  virtual std::optional<FormatId> invented() const { return std::nullopt; }
  /// An error when a file was written or cut short since it was opened. Asked after everything was read.
  virtual Status check_unchanged() const { return {}; }
};

/// A config.json, or a directory with one, and no weights: for measuring. Values are normal with a deviation of 0.02,
/// norms 1, biases 0.
Result<std::unique_ptr<Checkpoint>> invented_checkpoint(const std::string& path, FormatId format);

/// How a stored type becomes a runtime format. Self-registered in checkpoint/schemes/.
struct Scheme {
  std::string_view stored_type;
  FormatId format;
  int64_t block_values;  // values of one stored block; a row must be a multiple of it
  int64_t block_bytes;
  /// Converts one row of `cols` values into the planes of Layout::rows.
  void (*convert_row)(const std::byte* stored, int64_t cols, std::byte* data, std::byte* scales);
};
/// Called by each file of checkpoint/schemes/ when the program starts.
bool register_scheme(const Scheme& scheme);
const Scheme* find_scheme(std::string_view stored_type);
/// The types that can be loaded, for messages.
std::vector<std::string_view> known_types();

/// Checks that a tensor has this shape and a known type, and that rows of a matrix hold whole groups of its format.
Result<const Scheme*> check_tensor(const Checkpoint& checkpoint, const StoredTensor& tensor,
                                   std::span<const int64_t> shape);

}  // namespace quern
