// quern replay: runs a log of plans through an executor, without engine and server, and compares the tokens.
#include <fmt/format.h>
#include <fstream>
#include <string>

#include "apps/commands.h"
#include "apps/instance.h"
#include "apps/plan_log_file.h"
#include "base/channel.h"
#include "engine/plan_log.h"

namespace quern {
namespace {

struct Tally {
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t different = 0;
  std::string first;
};

class Replay {
 public:
  explicit Replay(Executor& executor) : executor_(executor) {
    executor_.on_result([this](StepResult result) { results_.try_send(std::move(result)); });
  }

  /// Runs the entries of the log in their order; each result of the log is compared with the one that comes back.
  Status run(std::ifstream& log) {
    std::string line;
    for (int64_t number = 2; std::getline(log, line); ++number) {
      auto entry = parse_plan_log_line(line);
      if (!entry.ok()) return Error{fmt::format("line {}: {}", number, entry.error().message)};
      if (auto* plan = std::get_if<StepPlan>(&*entry)) {
        TRY(check(*plan, number));
        executor_.submit(std::move(*plan));
        ++in_flight_;
      } else if (auto* masks = std::get_if<StepMasks>(&*entry)) {
        executor_.provide(std::move(*masks));
      } else {
        TRY(compare(std::get<StepResult>(*entry), number));
      }
    }
    while (in_flight_ > 0) receive();
    return {};
  }

  PlanLogHead head;
  Tally tally;

 private:
  Status check(const StepPlan& plan, int64_t number) const {
    const auto bad_row = [&](RowId row) { return index(row) < 0 || index(row) >= head.max_num_seqs; };
    int64_t tokens = 0;
    bool wrong = false;
    for (const RowStart& start : plan.starts) wrong = wrong || bad_row(start.row);
    for (const PageGrant& grant : plan.pages) wrong = wrong || bad_row(grant.row) || index(grant.page) >= head.pages;
    for (const PageCopy& copy : plan.copies)
      wrong = wrong || index(copy.from) >= head.pages || index(copy.to) >= head.pages;
    for (const Slice& slice : plan.slices) {
      wrong = wrong || bad_row(slice.row);
      tokens += slice.count;
    }
    if (!wrong && tokens <= head.max_num_batched_tokens) return {};
    return Error{fmt::format("line {}: a row, page or size is outside what the head of the log says", number)};
  }

  StepResult receive() {
    --in_flight_;
    return std::move(*results_.receive());
  }

  Status compare(const StepResult& logged, int64_t number) {
    if (in_flight_ == 0) return Error{fmt::format("line {}: a result without its plan", number)};
    const StepResult now = receive();
    if (now.device_error) return Error{*now.device_error};
    ++tally.steps;
    for (size_t i = 0; i < now.slices.size(); ++i) {
      tally.tokens += static_cast<int64_t>(now.slices[i].tokens.size());
      if (i < logged.slices.size() && now.slices[i].tokens == logged.slices[i].tokens) continue;
      if (tally.different++ == 0) tally.first = fmt::format("step {}, slice {}", now.step, i);
    }
    return {};
  }

  Executor& executor_;
  Channel<StepResult> results_;
  int64_t in_flight_ = 0;
};

Result<Tally> replay(const std::string& path, InstanceOptions& options) {
  std::ifstream log(path);
  std::string line;
  if (!log || !std::getline(log, line)) return Error{fmt::format("{}: cannot be read", path)};
  const auto head = parse_plan_log_head(line);
  if (!head.ok()) return Error{fmt::format("{}: {}", path, head.error().message)};
  options.max_num_seqs = head->max_num_seqs;
  options.max_num_batched_tokens = head->max_num_batched_tokens;
  options.max_model_len = std::to_string(head->max_model_len);
  options.kv_cache_memory_bytes = 0;
  ASSIGN_OR_RETURN(const OpenedModel opened, open_model(options));
  options.kv_cache_memory_bytes = head->pages * opened.memory.kv_page_bytes;
  ASSIGN_OR_RETURN(const auto instance, load_instance(options));
  ASSIGN_OR_RETURN(const auto executor, make_executor(*instance));
  Replay run(*executor);
  run.head = *head;
  const Status done = run.run(log);
  if (!done.ok()) return Error{fmt::format("{}: {}", path, done.error().message)};
  return run.tally;
}

}  // namespace

int replay_command(std::span<char* const> arguments) {
  InstanceOptions options;
  std::string path;
  Flags flags("quern replay LOG [MODEL] [flags]", "quern serve --plan-log steps.log ...; quern replay steps.log");
  flags.positional("LOG", &path);
  flags.positional("MODEL", &options.model);
  flags.add("--threads", "N", "worker threads", &options.threads, between(0, 1024));
  const Status parsed = flags.parse(arguments);
  if (!parsed.ok()) return fail(parsed.error().message);
  if (flags.help_wanted()) {
    fmt::print("{}", flags.help());
    return 0;
  }
  if (path.empty()) return fail("name a log: quern replay LOG [MODEL]");
  const auto tally = replay(path, options);
  if (!tally.ok()) return fail(tally.error().message);
  fmt::print("{} steps, {} tokens, {} slices differ\n", tally->steps, tally->tokens, tally->different);
  if (tally->different > 0) return fail(fmt::format("the first difference is in {}", tally->first));
  return 0;
}

}  // namespace quern
