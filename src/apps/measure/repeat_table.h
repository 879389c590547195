// RepeatTable: tokens a second of whole prompts and generations, each run several times: the tests, columns and keys of
// llama.cpp's llama-bench, so that both tables can be laid beside each other. Values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace quern {

struct RepeatOptions {
  std::vector<int> prompts = {};      // -p: tokens; 0: no such test
  std::vector<int> generations = {};  // -n
  std::string pairs = {};             // -pg: "512,128": a prompt, then a generation
  int repetitions = 5;                // -r
  std::string output = {};            // -o: md, csv, json or jsonl

  /// Whether the table is asked for at all.
  bool asked() const { return !prompts.empty() || !generations.empty() || !pairs.empty() || !output.empty(); }
};

/// A prompt of so many tokens and then so many generated ones; one of them may be 0.
struct RepeatTest {
  int prompt = 0;
  int generated = 0;
  std::vector<double> seconds = {};  // of each repetition
  std::string time = {};             // when it began, in UTC

  std::string name() const;  // pp512, tg128, pp512+tg128
  std::vector<double> rates() const;
};

/// The tests that are asked for, or else pp512 and tg128.
Result<std::vector<RepeatTest>> parse_tests(const RepeatOptions& options);

/// What is the same for all tests.
struct RepeatFacts {
  std::string commit = {}, cpu = {}, gpu = {}, backend = {}, file = {}, type = {}, kv_type = {};
  int64_t bytes = 0;
  int64_t parameters = 0;
  int threads = 0;
  int batch_tokens = 0;
};

struct MeanAndDeviation {
  double mean = 0.0;
  double deviation = 0.0;  // of the sample; 0 for one value
};
MeanAndDeviation spread(std::span<const double> values);

Json test_json(const RepeatFacts& facts, const RepeatTest& test);
/// All tests as `output` says: md, csv, json or jsonl.
std::string table_of(const std::string& output, const RepeatFacts& facts, std::span<const RepeatTest> tests);

}  // namespace quern
