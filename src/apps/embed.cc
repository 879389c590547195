// quern embed: texts to vectors.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <fmt/format.h>
#include <iostream>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/instance.h"
#include "apps/pending.h"

namespace quern {
namespace {

struct EmbedOptions {
  InstanceOptions instance;
  std::vector<std::string> words;
  std::string prompt_name;
  int dimensions = 0;
  bool json = false;
  bool normalize = true;
};

/// Texts go in while the vectors of earlier ones are computed; they come out in their order.
class Embedding {
 public:
  Embedding(Instance& instance, const EmbedOptions& options, std::string prompt)
      : instance_(instance), options_(options), prompt_(std::move(prompt)) {}

  Status add(std::string text) {
    ASSIGN_OR_RETURN(auto ids, instance_.tokenizer->encode(prompt_ + text, {}));
    const int most = instance_.memory.max_model_len;
    if (ids.empty() || ids.size() > static_cast<size_t>(most)) {
      return Error{fmt::format("text {} has {} tokens; this model takes 1 to {}", added_ + 1, ids.size(), most)};
    }
    Request request;
    request.prompt = std::move(ids);
    request.output = OutputKind::pooled;
    request.dimensions = options_.dimensions;
    request.normalize = options_.normalize && (instance_.task().normalize || options_.dimensions > 0);
    ASSIGN_OR_RETURN(auto pending, Pending::submit(*instance_.engine, std::move(request)));
    waiting_.push_back({std::move(text), std::move(pending)});
    ++added_;
    return waiting_.size() < 128 ? Status() : print_first();
  }

  Status finish() {
    while (!waiting_.empty()) TRY(print_first());
    return {};
  }

 private:
  struct Waiting {
    std::string text;
    std::shared_ptr<Pending> pending;
  };

  Status print_first() {
    const Waiting first = std::move(waiting_.front());
    waiting_.pop_front();
    const Reply reply = first.pending->wait();
    if (reply.reason != FinishReason::stop) {
      return Error{fmt::format("text {}: {}", printed_ + 1, reply.error.empty() ? "the engine stopped" : reply.error)};
    }
    if (options_.json) {
      fmt::print("{{\"index\":{},\"text\":{},\"embedding\":[{}]}}\n", printed_, Json(first.text).dump(),
                 fmt::join(reply.vector, ","));
    } else {
      fmt::print("{}\n", fmt::join(reply.vector, " "));
    }
    std::fflush(stdout);
    ++printed_;
    return {};
  }

  Instance& instance_;
  const EmbedOptions& options_;
  const std::string prompt_;
  std::deque<Waiting> waiting_;
  int64_t added_ = 0;
  int64_t printed_ = 0;
};

Result<std::string> prompt_of(const Task& task, const std::string& asked) {
  const std::string& name = asked.empty() ? task.default_prompt : asked;
  if (name.empty()) return std::string();
  if (const auto found = task.prompts.find(name); found != task.prompts.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, text] : task.prompts) names.push_back(known);
  return Error{names.empty() ? fmt::format("--prompt-name {}: this model has no prompts", name)
                             : fmt::format("--prompt-name {}: say {}", name, fmt::join(names, " or "))};
}

Status check_dimensions(const Instance& instance, int dimensions) {
  const Task& task = instance.task();
  const int dim = instance.spec().pooler->vector_size(instance.spec().dim);
  const auto& listed = task.dimensions;
  if (dimensions == 0 || dimensions == dim) return {};
  if (dimensions > 0 && dimensions < dim && task.any_dimensions) return {};
  if (std::find(listed.begin(), listed.end(), dimensions) != listed.end()) return {};
  if (!task.any_dimensions && listed.empty()) {
    return Error{
        fmt::format("--dimensions {}: the model's files do not say that shorter vectors than those of {} mean "
                    "something; --hf-overrides '{{\"is_matryoshka\": true}}' says so",
                    dimensions, dim)};
  }
  return Error{
      fmt::format("--dimensions {}: say {}", dimensions,
                  listed.empty() ? fmt::format("1 to {}", dim) : fmt::format("{}", fmt::join(listed, " or ")))};
}

Status embed(EmbedOptions& options) {
  ASSIGN_OR_RETURN(const auto instance, make_instance(options.instance));
  if (!instance->tokenizer) return Error{"random weights have no tokenizer: give --tokenizer FILE"};
  TRY(check_dimensions(*instance, options.dimensions));
  ASSIGN_OR_RETURN(std::string prompt, prompt_of(instance->task(), options.prompt_name));
  Embedding embedding(*instance, options, std::move(prompt));
  for (const std::string& word : options.words) {
    if (word != "-") {
      TRY(embedding.add(word));
      continue;
    }
    for (std::string line; std::getline(std::cin, line);) TRY(embedding.add(line));
  }
  return embedding.finish();
}

}  // namespace

int embed_command(std::span<char* const> arguments) {
  EmbedOptions options;
  options.instance.task = "embed";
  Flags flags("quern embed MODEL TEXT... [flags]    (-: every line of standard input is a text)",
              "quern embed ./all-MiniLM-L6-v2 \"Hello world\" --json");
  flags.positional("MODEL", &options.instance.model);
  flags.positional("TEXT", &options.words);
  flags.add("--json", "a JSON object per line: index, text, embedding", &options.json);
  flags.add("--dimensions", "N", "only the first N values, if the model is made for that", &options.dimensions,
            between(1, INT32_MAX));
  flags.add("--normalize", "vectors of length 1, if the model's are (default; --no-normalize)", &options.normalize);
  flags.add("--prompt-name", "NAME", "one of the model's own prompts goes before every text", &options.prompt_name);
  add_instance_flags(flags, options.instance);
  const Status parsed = flags.parse(arguments);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  if (options.words.empty()) return fail("give a text: quern embed MODEL TEXT... (or - for standard input)");
  const Status done = embed(options);
  return done.ok() ? 0 : fail(done.error().message);
}

}  // namespace quern
