// ModelName: what a person calls a model of a hub; and which names of files may become paths. Values.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace quern {

struct ModelName {
  std::string repository;  // "ORG/NAME"
  std::string variant;     // a quantization or a file of the repository; empty: what serves best

  std::string text() const { return variant.empty() ? repository : repository + ":" + variant; }
};

/// "ORG/NAME", "ORG/NAME:Q4_K_M", "ORG/NAME:FILE.gguf"; "hf.co/" and "huggingface.co/" before it are dropped, and
/// Ollama's ":latest" after it.
Result<ModelName> parse_model_name(std::string_view text);

/// Whether a file of a repository may have this path: relative, plain names, no way out of its folder.
bool is_safe_path(std::string_view path);

/// Whether this is a digest in hex, of git (40) or a SHA-256 (64).
bool is_digest(std::string_view text);

/// A revision that can be a file's name: a branch, a tag or a commit.
bool is_revision(std::string_view text);

/// The quantization that a GGUF file's name ends with, in upper case: "Q4_K_M", "UD-IQ2_XXS", "BF16"; or empty.
std::string quantization_in(std::string_view file);

/// Of "a-00002-of-00005.gguf": its stem "a", 2 and 5. Of other names the stem, 1 and 1.
struct PartName {
  std::string stem;  // without the ending of the file
  int number = 1;
  int count = 1;
};
PartName part_name(std::string_view file);

}  // namespace quern
