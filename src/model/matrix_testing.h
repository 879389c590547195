// The matrix of models: tests/matrix.json, made by tools/make_models_table, says which checkpoints prove a family in
// which kind of files and form of weights, and why there is none.
#pragma once

#include <fmt/format.h>
#include <ostream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/testing.h"

namespace quern::testing {

const std::string tests_folder = QUERN_SOURCE_DIR "/tests/";

/// A cell: a family in one kind of files and one form of weights.
struct MatrixCell {
  std::string family, files, form;
  std::string checkpoint;  // a folder of tests/; empty where there is none
  std::string none;        // why

  std::string folder() const { return tests_folder + checkpoint; }
  /// What Checkpoint::open takes.
  std::string path() const {
    const std::string gguf = folder() + "/model.gguf";
    return file_exists(gguf) ? gguf : folder();
  }
  std::string name() const { return checkpoint.substr(checkpoint.find('/') + 1); }
};

inline std::vector<MatrixCell> matrix() {
  std::vector<MatrixCell> cells;
  const Json list = Json::parse(read_file(tests_folder + "matrix.json").value()).value();
  for (const Json& one : list.items()) {
    const auto text = [&one](const char* key) { return one.string(key).value_or(""); };
    cells.push_back({text("family"), text("files"), text("form"), text("checkpoint"), text("none")});
  }
  return cells;
}

/// A cell on one device, or on one instruction set of the CPU.
struct MatrixCase {
  MatrixCell cell;
  Place place;

  std::string name() const { return cell.name() + "_" + place.name(); }
};

inline void PrintTo(const MatrixCase& test, std::ostream* out) {
  *out << test.cell.checkpoint << " " << test.place.name();
}

/// Those whose checkpoints are in a folder of tests/ ("golden").
inline std::vector<MatrixCase> matrix_cases(const std::string& folder) {
  std::vector<MatrixCase> all;
  for (const MatrixCell& cell : matrix()) {
    if (!cell.checkpoint.starts_with(folder + "/")) continue;
    for (const Place& place : all_places()) all.push_back({cell, place});
  }
  return all;
}

#if defined(__SANITIZE_ADDRESS__)
#define QUERN_SLOW_TESTS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QUERN_SLOW_TESTS 1
#endif
#endif

/// The folders of tests/golden whose weights are as they were made, and no tool quantized: every family is there, or
/// every fourth where a sanitizer makes each some thirty times slower.
inline std::vector<std::string> golden_models() {
#if defined(QUERN_SLOW_TESTS)
  constexpr size_t step = 4;
#else
  constexpr size_t step = 1;
#endif
  size_t seen = 0;
  std::vector<std::string> names;
  for (const MatrixCell& cell : matrix()) {
    if (!cell.checkpoint.starts_with("golden/") || cell.files != "safetensors" || cell.form == "fp8") continue;
    if (seen++ % step == 0) names.push_back(cell.name());
  }
  return names;
}

/// The line of a cell.
inline void print_cell(const MatrixCell& cell, const std::string& place, const std::string& result) {
  fmt::print("matrix | {} | {} | {} | {} | {} | {}\n", cell.family, cell.files, cell.form, cell.checkpoint, place,
             result);
}

}  // namespace quern::testing
