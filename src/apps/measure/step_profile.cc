#include "apps/measure/step_profile.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "base/channel.h"
#include "base/clock.h"
#include "engine/executor.h"
#include "engine/plan.h"

namespace quern {
namespace {

constexpr int most_tokens = 1 << 20;
constexpr int watched_repeats = 3;

/// An executor and what comes out of it.
class Steps {
 public:
  explicit Steps(std::unique_ptr<Executor> executor) : executor_(std::move(executor)) {
    executor_->on_result([this](StepResult result) {
      std::string error = result.device_error.value_or("");
      for (const SliceResult& slice : result.slices) {
        if (error.empty()) error = slice.error;
      }
      done_.try_send(Done{now_us(), std::move(error)});
    });
  }

  /// The moments at which the steps were done.
  Result<std::vector<int64_t>> run(std::vector<StepPlan> plans) {
    for (StepPlan& plan : plans) {
      plan.step = ++step_;
      executor_->submit(std::move(plan));
    }
    std::vector<int64_t> times;
    std::string error;
    for (size_t i = 0; i < plans.size(); ++i) {
      Done done = *done_.receive();
      times.push_back(done.at_us);
      if (error.empty()) error = std::move(done.error);
    }
    if (!error.empty()) return Error{"a step of the profile failed: " + error};
    return times;
  }

 private:
  struct Done {
    int64_t at_us = 0;
    std::string error;
  };

  Channel<Done> done_;
  uint64_t step_ = 0;
  std::unique_ptr<Executor> executor_;  // ends before what its results go to
};

/// Makes the plans of steps of one size. Rows of the page tables: first those that decode, then the prompts.
class Planner {
 public:
  Planner(const Instance& instance, const StepSize& size)
      : size_(size), batched_tokens_(instance.options.max_num_batched_tokens) {
    const KvLayout kv = kv_layout(instance.spec(), 2);
    groups_ = static_cast<int>(kv.groups.size());
    const auto pages = [&](int tokens) { return (tokens + kv.page_tokens - 1) / kv.page_tokens; };
    row_pages_ = size.rows > 0 ? pages(row_tokens()) : 0;
    prompt_pages_ = pages(size.prompt_tokens + 1);
    std::mt19937 random(1);
    order_.resize(static_cast<size_t>(instance.memory.kv_pages));
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::shuffle(order_, random);
    std::uniform_int_distribution<int32_t> any(0, instance.spec().vocab - 1);
    const auto request_of = [&](int tokens) {
      auto request = std::make_shared<Request>();
      request->sampling.temperature = 0.0F;
      for (int i = 0; i < tokens; ++i) request->prompt.push_back(any(random));
      return request;
    };
    context_ = request_of(size.context);
    for (int i = 0; i < size.prompts; ++i) prompts_.push_back(request_of(size.prompt_tokens));
  }

  /// Steps between two calls of begin_rows().
  int batch() const { return size_.prompts > 0 ? 3 : 16; }
  /// What the longest row holds in the end.
  int row_tokens() const { return std::max(size_.context + batch() + 1, size_.prompt_tokens + 1); }
  int64_t pages() const {
    return int64_t{groups_} * (int64_t{size_.rows} * row_pages_ + int64_t{size_.prompts} * prompt_pages_);
  }

  /// Everybody's pages, and the keys and values of the context: those of the first row, copied to the others.
  std::vector<StepPlan> fill() const {
    std::vector<StepPlan> plans(1);
    for (int row = 0; row < size_.sequences(); ++row) grant(row, plans[0]);
    const int whole = size_.context - 1;
    if (whole > 0) plans[0].starts.push_back({RowId{0}, context_, context_->prompt});
    for (int begin = 0; begin < whole; begin += batched_tokens_) {
      if (begin > 0) plans.emplace_back();
      plans.back().slices.push_back(slice(0, begin, std::min(batched_tokens_, whole - begin), false));
    }
    if (size_.rows > 1 && whole > 0) {
      plans.push_back(begin_rows());
      for (int row = 1; row < size_.rows; ++row) copy_context(row, plans.back());
    }
    if (plans[0].slices.empty()) {  // there is no context
      StepPlan first = size_.rows > 0 ? begin_rows() : step();
      first.pages = std::move(plans[0].pages);
      plans[0] = std::move(first);
    }
    return plans;
  }

  /// All rows that decode are at the last token of their context again.
  StepPlan begin_rows() const {
    StepPlan plan;
    for (int row = 0; row < size_.rows; ++row) {
      plan.starts.push_back({RowId{row}, context_, context_->prompt});
      plan.slices.push_back(slice(row, size_.context - 1, 1, true));
    }
    return plan;
  }

  StepPlan step() const {
    StepPlan plan;
    for (int row = 0; row < size_.rows; ++row) plan.slices.push_back(slice(row, -1, 1, true));
    for (int i = 0; i < size_.prompts; ++i) {
      const auto& prompt = prompts_[static_cast<size_t>(i)];
      plan.starts.push_back({RowId{size_.rows + i}, prompt, prompt->prompt});
      plan.slices.push_back(slice(size_.rows + i, 0, size_.prompt_tokens, true));
    }
    return plan;
  }

  /// Of the first step after begin_rows().
  std::vector<SegmentPlace> places() const {
    std::vector<SegmentPlace> all(static_cast<size_t>(size_.rows), {size_.context, 1});
    all.insert(all.end(), static_cast<size_t>(size_.prompts), {0, size_.prompt_tokens});
    return all;
  }

 private:
  static Slice slice(int row, int begin, int count, bool samples) {
    Slice made;
    made.row = RowId{row};
    made.begin = begin;
    made.count = count;
    made.samples = samples;
    return made;
  }

  /// Anywhere in the pool, as in a server that has run for a while.
  PageId page(int row, int group, int index) const {
    const int prompt = row - size_.rows;
    const int place = prompt < 0
                          ? (row * groups_ + group) * row_pages_ + index
                          : size_.rows * groups_ * row_pages_ + (prompt * groups_ + group) * prompt_pages_ + index;
    return PageId{order_[static_cast<size_t>(place)]};
  }

  void grant(int row, StepPlan& plan) const {
    const int count = row < size_.rows ? row_pages_ : prompt_pages_;
    for (int group = 0; group < groups_; ++group) {
      for (int i = 0; i < count; ++i) plan.pages.push_back({RowId{row}, group, i, page(row, group, i)});
    }
  }

  void copy_context(int row, StepPlan& plan) const {
    for (int group = 0; group < groups_; ++group) {
      for (int i = 0; i < row_pages_; ++i) plan.copies.push_back({group, page(0, group, i), page(row, group, i), 0});
    }
  }

  const StepSize size_;
  const int batched_tokens_;
  int groups_ = 0;
  int row_pages_ = 0;
  int prompt_pages_ = 0;
  std::vector<int32_t> order_;  // of the pages that are used
  std::shared_ptr<const Request> context_;
  std::vector<std::shared_ptr<const Request>> prompts_;
};

/// The least time of a step over several rounds.
Result<double> time_steps(Steps& steps, const Planner& planner, double seconds) {
  const int64_t start = now_us();
  double best = 1e9;
  for (int round = 0; round < 2 || seconds_since(start) < seconds; ++round) {
    std::vector<StepPlan> plans;
    if (StepPlan rows = planner.begin_rows(); !rows.slices.empty()) plans.push_back(std::move(rows));
    for (int i = 0; i < planner.batch(); ++i) plans.push_back(planner.step());
    ASSIGN_OR_RETURN(const auto times, steps.run(std::move(plans)));
    const int64_t span = times.back() - times[times.size() - static_cast<size_t>(planner.batch())];
    best = std::min(best, static_cast<double>(span) * 1e-6 / (planner.batch() - 1));
  }
  return best;
}

/// The operations of the quickest of several steps.
Result<StepOperations> watch_steps(Steps& steps, const Planner& planner, OperationTimes& times,
                                   const MachineLimits& limits) {
  StepOperations best;
  for (int round = 0; round < watched_repeats; ++round) {
    if (StepPlan rows = planner.begin_rows(); !rows.slices.empty()) {
      std::vector<StepPlan> plans;
      plans.push_back(std::move(rows));
      TRY(steps.run(std::move(plans)));
    }
    times.take({}, limits);
    std::vector<StepPlan> plans;
    plans.push_back(planner.step());
    TRY(steps.run(std::move(plans)));
    StepOperations now = times.take(planner.places(), limits);
    if (round == 0 || now.seconds < best.seconds) best = std::move(now);
  }
  return best;
}

Status check_room(const Instance& instance, const StepSize& size) {
  const Planner planner(instance, size);
  const InstanceOptions& options = instance.options;
  const auto refuse = [&](const char* what, int64_t needed, int64_t there, const char* flag) {
    return Error{fmt::format("a step {} needs {} {}, but there are {}; {}", size.text(), needed, what, there, flag)};
  };
  if (size.sequences() > options.max_num_seqs) {
    return refuse("sequences", size.sequences(), options.max_num_seqs, "raise --max-num-seqs");
  }
  if (size.tokens() > options.max_num_batched_tokens) {
    return refuse("tokens", size.tokens(), options.max_num_batched_tokens, "raise --max-num-batched-tokens");
  }
  if (planner.row_tokens() > instance.memory.max_model_len) {
    return refuse("tokens of context", planner.row_tokens(), instance.memory.max_model_len, "raise --max-model-len");
  }
  if (planner.pages() > instance.memory.kv_pages) {
    return refuse("pages", planner.pages(), instance.memory.kv_pages, "raise --kv-cache-memory-bytes");
  }
  return {};
}

/// "256@1024" or "8x1024".
bool read_part(const std::string& part, StepSize* size) {
  int count = 0;
  int tokens = 0;
  char kind = 0;
  char more = 0;
  if (std::sscanf(part.c_str(), "%7d%c%7d%c", &count, &kind, &tokens, &more) != 3) return false;
  if (count <= 0 || tokens <= 0 || count > most_tokens || tokens > most_tokens) return false;
  if (kind != '@' && kind != 'x') return false;
  int& of = kind == '@' ? size->rows : size->prompts;
  if (of != 0) return false;
  of = count;
  (kind == '@' ? size->context : size->prompt_tokens) = tokens;
  return true;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::string StepSize::text() const {
  std::string made;
  if (rows > 0) made = fmt::format("{}@{}", rows, context);
  if (prompts > 0) made += fmt::format("{}{}x{}", made.empty() ? "" : "+", prompts, prompt_tokens);
  return made;
}

Result<std::vector<StepSize>> parse_steps(std::string_view list) {
  std::vector<StepSize> steps;
  for (const std::string& text : split(list, ',')) {
    StepSize size;
    for (const std::string& part : split(text, '+')) {
      if (read_part(part, &size) && int64_t{size.prompts} * size.prompt_tokens <= most_tokens) continue;
      return Error{
          fmt::format("--profile {}: say ROWS@CONTEXT for rows that decode, PROMPTSxTOKENS for prompts, or both "
                      "with a + between them, such as 256@1024,8x1024,256@1024+8x1024",
                      text)};
    }
    steps.push_back(size);
  }
  return steps;
}

Result<std::vector<StepProfile>> profile_steps(Instance& instance, const std::vector<StepSize>& steps,
                                               const MachineLimits& limits, double seconds) {
  for (const StepSize& size : steps) TRY(check_room(instance, size));
  std::vector<StepProfile> profiles(steps.size());
  OperationTimes times(*instance.device);
  Trace* const before = instance.options.trace;
  for (const bool watched : {false, true}) {
    instance.options.trace = watched ? &times : nullptr;
    auto executor = make_executor(instance);
    instance.options.trace = before;
    if (!executor.ok()) return std::move(executor).error();
    Steps run(std::move(*executor));
    for (size_t i = 0; i < steps.size(); ++i) {
      const Planner planner(instance, steps[i]);
      TRY(run.run(planner.fill()));
      if (watched) {
        ASSIGN_OR_RETURN(profiles[i].operations, watch_steps(run, planner, times, limits));
      } else {
        ASSIGN_OR_RETURN(profiles[i].seconds, time_steps(run, planner, seconds));
      }
    }
  }
  return profiles;
}

}  // namespace quern
