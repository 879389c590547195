#include "apps/load/requests.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <random>
#include <string_view>

#include "base/file.h"

namespace quern {
namespace {

using Random = std::mt19937_64;

constexpr int kRandomOutput = 128;
constexpr int kCustomOutput = 256;

/// Short common words: a token each in most vocabularies.
constexpr std::string_view kWords[] = {
    "time",  "year",   "people", "way",     "day",     "man",     "thing",    "woman",   "life",   "child",
    "world", "school", "state",  "family",  "student", "group",   "country",  "problem", "hand",   "part",
    "place", "case",   "week",   "company", "system",  "program", "question", "work",    "number", "night",
    "point", "home",   "water",  "room",    "mother",  "area",    "money",    "story",   "fact",   "month",
    "lot",   "right",  "study",  "book",    "eye",     "job",     "word",     "business"};

int uniform(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

int length_near(Random& random, int length, double ratio) {
  const int low = static_cast<int>(std::floor(length * (1.0 - ratio)));
  const int high = static_cast<int>(std::ceil(length * (1.0 + ratio)));
  return std::max(1, uniform(random, low, high));
}

/// Four bytes are about one token of English; only used where the server does not count.
int guessed_tokens(const std::string& text) { return std::max(1, static_cast<int>(text.size() / 4)); }

int tokens_of(const std::string& text, const PromptOptions& options) {
  if (options.tokens == nullptr) return guessed_tokens(text);
  return options.tokens->count(text) + (options.chat ? 0 : options.tokens->around());
}

/// Prompts of random tokens or words after a prefix that is one of a few.
class RandomPrompts {
 public:
  static Result<RandomPrompts> make(const PromptOptions& options, uint64_t seed) {
    RandomPrompts made(options, seed);
    const bool repeats = options.dataset == "prefix_repetition";
    const int length = repeats ? options.repeated_tokens : options.prefix_tokens;
    for (int i = 0; i < (repeats ? options.prefixes : 1); ++i) {
      LoadPrompt& prefix = made.prefixes_.emplace_back();
      if (length > 0) TRY(made.add(prefix, length));
    }
    return made;
  }

  Result<LoadPrompt> next() {
    const int output = options_.output_tokens < 0 ? kRandomOutput : options_.output_tokens;
    const bool repeats = options_.dataset == "prefix_repetition";
    const double ratio = repeats ? 0.0 : options_.range_ratio;
    LoadPrompt made = prefixes_[static_cast<size_t>(turn_++) % prefixes_.size()];
    const int length = repeats ? options_.repeated_suffix : options_.input_tokens;
    TRY(add(made, length_near(random_, length, ratio)));
    made.output_tokens = length_near(random_, output, ratio);
    return made;
  }

 private:
  RandomPrompts(const PromptOptions& options, uint64_t seed) : options_(options), random_(seed) {}

  Status add(LoadPrompt& prompt, int tokens) {
    prompt.input_tokens += tokens;
    if (options_.words && options_.tokens != nullptr) {
      const int around = options_.chat ? 0 : options_.tokens->around();
      const int wanted = std::max(1, prompt.input_tokens - around);
      ASSIGN_OR_RETURN(prompt.text, options_.tokens->draw_text(std::move(prompt.text), wanted, random_));
      return {};
    }
    for (int i = 0; i < tokens; ++i) {
      if (options_.words) {
        prompt.text += prompt.text.empty() ? "" : " ";
        prompt.text += kWords[uniform(random_, 0, static_cast<int>(std::size(kWords)) - 1)];
      } else if (options_.tokens != nullptr) {
        prompt.ids.push_back(options_.tokens->draw_id(random_));
      } else {
        prompt.ids.push_back(uniform(random_, std::min(1000, options_.vocabulary / 2), options_.vocabulary - 1));
      }
    }
    return {};
  }

  const PromptOptions& options_;
  Random random_;
  std::vector<LoadPrompt> prefixes_;
  int turn_ = 0;
};

Result<LoadPrompt> custom_prompt(const Json& line, const PromptOptions& options) {
  LoadPrompt made;
  const Json* prompt = line.present("prompt");
  if (prompt == nullptr) return Error{"there is no \"prompt\""};
  if (prompt->is_string()) {
    made.text = prompt->as_string();
    made.input_tokens = tokens_of(made.text, options);
  } else if (prompt->is_array()) {
    for (const Json& id : prompt->items()) {
      if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() > std::numeric_limits<int32_t>::max()) {
        return Error{"a \"prompt\" that is an array must hold token ids"};
      }
      made.ids.push_back(static_cast<int32_t>(id.as_integer()));
    }
    made.input_tokens = static_cast<int>(made.ids.size());
  } else {
    return Error{fmt::format("\"prompt\" is {}, expected a string or token ids", prompt->kind())};
  }
  const auto own = line.has("output_len") ? line.integer("output_len") : line.integer("output_tokens");
  const int64_t output = options.output_tokens >= 0 ? options.output_tokens : own.value_or(kCustomOutput);
  made.output_tokens = static_cast<int>(std::clamp<int64_t>(output, 1, 1 << 20));
  return made;
}

Result<std::vector<LoadPrompt>> custom_prompts(const PromptOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, read_file(options.path));
  std::vector<LoadPrompt> prompts;
  int number = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = std::string_view(text).substr(start, end - start);
    start = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto parsed = Json::parse(line);
    if (!parsed.ok()) return Error{fmt::format("{}:{}: {}", options.path, number, parsed.error().message)};
    auto prompt = custom_prompt(*parsed, options);
    if (!prompt.ok()) return Error{fmt::format("{}:{}: {}", options.path, number, prompt.error().message)};
    prompts.push_back(std::move(*prompt));
  }
  return prompts;
}

/// The first two turns of every conversation; very short and very long ones are left out as others do.
Result<std::vector<LoadPrompt>> sharegpt_prompts(const PromptOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, read_file(options.path));
  const auto parsed = Json::parse(text);
  if (!parsed.ok()) return Error{fmt::format("{}: {}", options.path, parsed.error().message)};
  if (!parsed->is_array()) return Error{fmt::format("{}: is {}, expected an array", options.path, parsed->kind())};
  std::vector<LoadPrompt> prompts;
  for (const Json& entry : parsed->items()) {
    const Json* turns = entry.present("conversations");
    if (turns == nullptr || !turns->is_array() || turns->items().size() < 2) continue;
    LoadPrompt made;
    made.text = turns->items()[0].string("value").value_or("");
    made.input_tokens = tokens_of(made.text, options);
    const std::string answer = turns->items()[1].string("value").value_or("");
    const bool asked = options.output_tokens >= 0;
    const int own = options.tokens == nullptr ? guessed_tokens(answer) : options.tokens->count(answer);
    made.output_tokens = asked ? std::max(1, options.output_tokens) : own;
    const bool short_one = made.input_tokens < 4 || (!asked && own < 4);
    const bool long_one = made.input_tokens > 1024 || made.input_tokens + made.output_tokens > 2048;
    if (!short_one && !long_one) prompts.push_back(std::move(made));
  }
  return prompts;
}

/// The rate when request `index` of `count` is due.
double rate_at(const ArrivalOptions& options, int index, int count) {
  if (options.ramp.empty()) return options.rate;
  const double progress = static_cast<double>(index) / std::max(1, count - 1);
  if (options.ramp == "linear") return options.ramp_start + (options.ramp_end - options.ramp_start) * progress;
  return options.ramp_start * std::pow(options.ramp_end / options.ramp_start, progress);
}

}  // namespace

Result<std::vector<LoadPrompt>> make_prompts(const PromptOptions& options, int count, uint64_t seed) {
  std::vector<LoadPrompt> prompts;
  if (options.made()) {
    ASSIGN_OR_RETURN(RandomPrompts source, RandomPrompts::make(options, seed));
    for (int i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(prompts.emplace_back(), source.next());
    }
    return prompts;
  }
  if (options.dataset != "sharegpt" && options.dataset != "custom") {
    return Error{fmt::format("--dataset-name {} is unknown; there are random, prefix_repetition, sharegpt and custom",
                             options.dataset)};
  }
  if (options.path.empty()) return Error{fmt::format("--dataset-name {} needs --dataset-path", options.dataset)};
  ASSIGN_OR_RETURN(prompts, options.dataset == "custom" ? custom_prompts(options) : sharegpt_prompts(options));
  if (prompts.empty()) return Error{fmt::format("{}: no prompt in it can be used", options.path)};
  if (options.dataset == "sharegpt") std::shuffle(prompts.begin(), prompts.end(), Random(seed));
  const size_t found = prompts.size();
  prompts.reserve(static_cast<size_t>(count));
  while (prompts.size() < static_cast<size_t>(count)) prompts.push_back(prompts[prompts.size() % found]);
  prompts.resize(static_cast<size_t>(count));
  return prompts;
}

std::vector<double> arrival_times(const ArrivalOptions& options, int count, uint64_t seed) {
  std::vector<double> times(static_cast<size_t>(count), 0.0);
  if (options.ramp.empty() && std::isinf(options.rate)) return times;
  Random random(seed);
  double now = 0.0;
  for (int i = 0; i < count; ++i) {
    const double rate = rate_at(options, i, count);
    std::gamma_distribution<double> gap(options.burstiness, 1.0 / (rate * options.burstiness));
    now += std::isinf(options.burstiness) ? 1.0 / rate : gap(random);
    times[static_cast<size_t>(i)] = now;
  }
  if (options.ramp.empty() && now > 0.0) {
    for (double& time : times) time *= count / options.rate / now;
  }
  return times;
}

HttpRequest LoadTarget::get(const std::string& path) const { return {"GET", prefix + path, headers, "", ""}; }

HttpRequest LoadTarget::post(const LoadPrompt& prompt) const {
  Json body = fields;
  if (chat()) {
    body.set("messages", Json::Array{Json::Object{{"role", "user"}, {"content", prompt.text}}});
    body.set("max_completion_tokens", prompt.output_tokens);
  } else if (prompt.ids.empty()) {
    body.set("prompt", prompt.text);
    body.set("max_tokens", prompt.output_tokens);
  } else {
    body.set("prompt", Json::Array(prompt.ids.begin(), prompt.ids.end()));
    body.set("max_tokens", prompt.output_tokens);
  }
  if (extra.is_object()) {
    for (const auto& [key, value] : extra.members()) body.set(key, value);
  }
  HttpRequest request{"POST", prefix + endpoint, headers, body.dump(), ""};
  if (!prompt.request_id.empty()) request.headers.emplace_back("x-request-id", prompt.request_id);
  request.headers.emplace_back("content-type", "application/json");
  return request;
}

}  // namespace quern
