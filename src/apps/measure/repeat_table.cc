#include "apps/measure/repeat_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "base/flags.h"

namespace quern {
namespace {

constexpr int most_tokens = 1 << 20;

/// A row of the table for people. Numbers stand to the right.
std::array<std::string, 7> row_of(const RepeatFacts& facts, const RepeatTest& test) {
  const MeanAndDeviation rate = spread(test.rates());
  return {facts.type,
          fmt::format("{:.2f} MiB", static_cast<double>(facts.bytes) / (1 << 20)),
          fmt::format("{:.2f} M", static_cast<double>(facts.parameters) * 1e-6),
          facts.backend,
          std::to_string(facts.threads),
          test.name(),
          fmt::format("{:.2f} ± {:.2f}", rate.mean, rate.deviation)};
}

std::string markdown(const RepeatFacts& facts, std::span<const RepeatTest> tests) {
  static constexpr std::array<const char*, 7> names = {"model", "size", "params", "backend", "threads", "test", "t/s"};
  static constexpr std::array<size_t, 7> widths = {30, 10, 10, 10, 7, 15, 20};
  const auto is_text = [](size_t column) { return column == 0 || column == 3; };
  std::string text = "|";
  for (size_t i = 0; i < names.size(); ++i)
    text += fmt::format(fmt::runtime(is_text(i) ? " {:{}} |" : " {:>{}} |"), names[i], widths[i]);
  text += "\n|";
  for (size_t i = 0; i < names.size(); ++i)
    text += fmt::format(" {}{} |", std::string(widths[i] - 1, '-'), is_text(i) ? "-" : ":");
  text += "\n";
  for (const RepeatTest& test : tests) {
    const auto row = row_of(facts, test);
    text += "|";
    for (size_t i = 0; i < row.size(); ++i)
      text += fmt::format(fmt::runtime(is_text(i) ? " {:{}} |" : " {:>{}} |"), row[i], widths[i]);
    text += "\n";
  }
  return text;
}

/// Quoted as spreadsheets read it.
std::string quoted(const Json& value) {
  std::string text = value.is_string() ? value.as_string() : value.dump();
  for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
  return "\"" + text + "\"";
}

std::string csv(const RepeatFacts& facts, std::span<const RepeatTest> tests) {
  std::string head, rows;
  for (const RepeatTest& test : tests) {
    const Json json = test_json(facts, test);
    std::vector<std::string> names, values;
    for (const auto& [name, value] : json.members()) {
      if (value.is_array()) continue;  // the repetitions
      names.push_back(name);
      values.push_back(quoted(value));
    }
    head = fmt::format("{}\n", fmt::join(names, ","));
    rows += fmt::format("{}\n", fmt::join(values, ","));
  }
  return head + rows;
}

}  // namespace

std::string RepeatTest::name() const {
  if (generated == 0) return fmt::format("pp{}", prompt);
  if (prompt == 0) return fmt::format("tg{}", generated);
  return fmt::format("pp{}+tg{}", prompt, generated);
}

std::vector<double> RepeatTest::rates() const {
  std::vector<double> made;
  for (const double each : seconds) made.push_back((prompt + generated) / each);
  return made;
}

Result<std::vector<RepeatTest>> parse_tests(const RepeatOptions& options) {
  static constexpr std::array<std::string_view, 5> outputs = {"", "md", "csv", "json", "jsonl"};
  if (std::ranges::find(outputs, options.output) == outputs.end()) {
    return Error{fmt::format("--output {} is unknown; there are md, csv, json and jsonl", options.output)};
  }
  std::vector<RepeatTest> tests;
  const bool alone = options.pairs.empty() || !options.prompts.empty() || !options.generations.empty();
  const auto or_default = [](const std::vector<int>& given, int otherwise) {
    return given.empty() ? std::vector<int>{otherwise} : given;
  };
  if (alone) {
    for (const int tokens : or_default(options.prompts, 512)) tests.push_back({tokens, 0});
    for (const int tokens : or_default(options.generations, 128)) tests.push_back({0, tokens});
  }
  std::erase_if(tests, [](const RepeatTest& test) { return test.prompt + test.generated == 0; });
  if (!options.pairs.empty()) {
    const std::string_view text = options.pairs;
    const size_t comma = std::min(text.find(','), text.size());
    const auto prompt = parse_integer(text.substr(0, comma));
    const auto generated = parse_integer(text.substr(std::min(comma + 1, text.size())));
    const auto good = [](const Result<int64_t>& n) { return n.ok() && *n > 0 && *n <= most_tokens; };
    if (!good(prompt) || !good(generated)) {
      return Error{fmt::format("-pg {}: say tokens of the prompt and of the generation, such as 512,128", text)};
    }
    tests.push_back({static_cast<int>(*prompt), static_cast<int>(*generated)});
  }
  if (tests.empty()) return Error{"-p 0 and -n 0 leave nothing to measure; say the tokens of one of them"};
  return tests;
}

MeanAndDeviation spread(std::span<const double> values) {
  MeanAndDeviation made;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) made.mean += value / count;
  double squares = 0.0;
  for (const double value : values) squares += (value - made.mean) * (value - made.mean);
  if (values.size() > 1) made.deviation = std::sqrt(squares / (count - 1));
  return made;
}

Json test_json(const RepeatFacts& facts, const RepeatTest& test) {
  std::vector<double> ns;
  for (const double seconds : test.seconds) ns.push_back(std::round(seconds * 1e9));
  const std::vector<double> rates = test.rates();
  const MeanAndDeviation time = spread(ns);
  const MeanAndDeviation rate = spread(rates);
  Json json = Json::Object{{"build_commit", facts.commit},
                           {"cpu_info", facts.cpu},
                           {"gpu_info", facts.gpu},
                           {"backends", facts.backend},
                           {"model_filename", facts.file},
                           {"model_type", facts.type},
                           {"model_size", facts.bytes},
                           {"model_n_params", facts.parameters},
                           {"n_batch", facts.batch_tokens},
                           {"n_threads", facts.threads},
                           {"type_k", facts.kv_type},
                           {"type_v", facts.kv_type},
                           {"n_prompt", test.prompt},
                           {"n_gen", test.generated},
                           {"n_depth", 0},
                           {"test_time", test.time}};
  json.set("avg_ns", static_cast<int64_t>(time.mean));
  json.set("stddev_ns", static_cast<int64_t>(time.deviation));
  json.set("avg_ts", rate.mean);
  json.set("stddev_ts", rate.deviation);
  Json::Array samples;
  for (const double each : ns) samples.emplace_back(static_cast<int64_t>(each));
  json.set("samples_ns", std::move(samples));
  json.set("samples_ts", Json::Array(rates.begin(), rates.end()));
  return json;
}

std::string table_of(const std::string& output, const RepeatFacts& facts, std::span<const RepeatTest> tests) {
  if (output == "csv") return csv(facts, tests);
  if (output != "json" && output != "jsonl") return markdown(facts, tests);
  std::vector<std::string> lines;
  for (const RepeatTest& test : tests) lines.push_back(test_json(facts, test).dump());
  if (output == "jsonl") return fmt::format("{}\n", fmt::join(lines, "\n"));
  return fmt::format("[\n  {}\n]\n", fmt::join(lines, ",\n  "));
}

}  // namespace quern
