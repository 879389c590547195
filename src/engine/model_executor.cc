#include "engine/model_executor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/channel.h"
#include "base/clock.h"
#include "engine/executor_memory.h"
#include "engine/graphs.h"
#include "engine/rows.h"
#include "engine/sampler.h"
#include "engine/scorer.h"
#include "ops/rows.h"

namespace quern {
namespace {

int32_t pages_per_row(const ModelExecutorOptions& options) {
  return (options.max_model_len + options.kv.page_tokens - 1) / options.kv.page_tokens + 1;
}

/// Tokens of a prompt whose logits are there at the same time.
int32_t scored_tokens(const ModelExecutorOptions& options) {
  return std::max(Graphs::padded(options.rows), std::min(options.max_tokens, options.scored_tokens));
}

int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Sizes of what the executor takes from its block of device memory, and of what it takes from host memory, in order.
struct Parts {
  int64_t stage, lists, next, tables, arena;
  int64_t host_stage, host_lists, host_sampler, host_scorer;
  int64_t total() const { return stage + lists + next + tables + arena; }
  int64_t host_total() const { return host_stage + host_lists + host_sampler + host_scorer; }
};

Parts parts_of(const Decoder& decoder, Device& device, const ModelExecutorOptions& options) {
  const auto groups = static_cast<int64_t>(options.kv.groups.size());
  const int32_t segments = Graphs::padded(options.rows);
  const int32_t tokens = std::max(options.max_tokens, segments);
  const int32_t outputs = scored_tokens(options);
  const StepShape most{tokens, segments, outputs};
  const int32_t positions = pages_per_row(options) * options.kv.page_tokens;
  Parts parts{};
  parts.stage = align(StepStage::bytes(tokens, segments));
  parts.lists = align(TableStage::bytes);
  parts.next = align(int64_t{options.rows} * dtype_bytes(Dtype::i32));
  parts.tables = align(groups * options.rows * pages_per_row(options) * dtype_bytes(Dtype::i32));
  parts.arena = align(decoder.activation_bytes(device.queue(), options.activations, most, positions) +
                      sample_scratch_bytes(device.queue(), outputs, options.vocab));
  parts.host_stage = align(StepStage::host_bytes(tokens, segments));
  parts.host_lists = align(TableStage::host_bytes);
  parts.host_sampler = align(Sampler::host_bytes(device, options.rows, options.vocab));
  parts.host_scorer = align(Scorer::host_bytes(options.max_tokens));
  return parts;
}

/// How often a waiting executor looks whether the step in flight is done.
constexpr std::chrono::microseconds poll{50};

/// A row whose mask takes longer fails, so that the others go on.
constexpr std::chrono::seconds longest_mask_wait{5};

/// Thread: executor, but for submit(), provide() and the destructor.
class ModelExecutor final : public Executor {
 public:
  ModelExecutor(const Decoder& decoder, Device& device, const ModelExecutorOptions& options, const Parts& parts,
                ExecutorMemory memory)
      : decoder_(decoder),
        device_(device),
        options_(options),
        memory_(std::move(memory)),
        arena_begin_(memory_.block() + parts.total() - parts.arena),
        arena_bytes_(parts.arena),
        rows_(static_cast<size_t>(options.rows)),
        stage_(memory_.block(), memory_.host(), std::max(options.max_tokens, Graphs::padded(options.rows)),
               Graphs::padded(options.rows)),
        lists_(memory_.block() + parts.stage, memory_.host() + parts.host_stage),
        next_(Tensor::dense(memory_.block() + parts.stage + parts.lists, Dtype::i32, options.rows)),
        arena_(arena_begin_, arena_bytes_),
        sampler_(device, memory_.host() + parts.host_stage + parts.host_lists, options.rows, options.vocab, next_),
        scorer_(device, memory_.host() + parts.host_total() - parts.host_scorer, options.max_tokens,
                scored_tokens(options), options.see_logits) {
    cache_.pool = memory_.pool();
    cache_.pages = options.pages;
    cache_.states = memory_.pool() + int64_t{options.pages} * options.kv.page_bytes;
    cache_.layout = options.kv;
    cache_.dtype = options.kv_dtype;
    const int32_t pages = pages_per_row(options);
    const auto groups = static_cast<int32_t>(options.kv.groups.size());
    std::byte* const tables = memory_.block() + parts.stage + parts.lists + parts.next;
    all_tables_ = Tensor::dense(tables, Dtype::i32, groups * options.rows * pages);
    for (int32_t group = 0; group < groups; ++group) {
      const int64_t offset = int64_t{group} * options.rows * pages * dtype_bytes(Dtype::i32);
      cache_.tables.push_back(Tensor::dense(tables + offset, Dtype::i32, options.rows, pages));
    }
    if (options.capture && device.kind() != DeviceKind::cpu) {  // a CPU captures nothing, and padding costs it time
      graphs_.emplace(device, [this](Queue queue, const StepShape& shape) {
        Arena arena(arena_begin_, arena_bytes_);
        Exec exec = exec_of(queue, arena);
        const Tensor logits = forward(exec, shape);
        return Graphs::Outcome{logits, arena.used()};
      });
    }
  }

  ~ModelExecutor() override {
    plans_.close();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    masks_ready_.notify_all();
    if (thread_.joinable()) thread_.join();
    graphs_.reset();
  }

  void on_result(std::function<void(StepResult)> deliver) override {
    deliver_ = std::move(deliver);
    thread_ = std::thread([this] { run(); });
  }

  void submit(StepPlan plan) override { plans_.try_send(std::move(plan)); }

  void provide(StepMasks masks) override {
    {
      const std::lock_guard lock(mutex_);
      auto& waiting = masks_[masks.step];
      for (RowMask& mask : masks.rows) waiting[index(mask.row)] = std::move(mask.words);
    }
    masks_ready_.notify_all();
  }

 private:
  /// What the forward half of a step leaves: hidden states where prompts are scored, else logits.
  struct Forwarded {
    Tensor hidden;
    Tensor logits;
  };

  /// The forward half of a step is queued while the one before it still runs; its sample half when the results of that
  /// one are known, which is before its logits are.
  void run() {
    while (true) {
      std::optional<StepPlan> plan = next_plan();
      if (!plan && !pending_) return;
      const bool ahead = plan && pending_ && can_go_ahead();
      Forwarded forwarded;
      if (ahead) forwarded = guard([&] { return begin(*plan); });
      if (pending_) finish();
      if (!plan) continue;
      started_us_ = now_us();
      if (!ahead) forwarded = guard([&] { return begin(*plan); });
      guard([&] { choose(*plan, forwarded); });
      pending_ = std::move(plan);
    }
  }

  /// The next plan; nothing when the step in flight is done first, or when there will be none.
  std::optional<StepPlan> next_plan() {
    if (!pending_) return plans_.receive();
    while (true) {
      if (is_computed()) return plans_.try_receive();
      if (auto plan = plans_.receive_until(std::chrono::steady_clock::now() + poll)) return plan;
      if (plans_.closed()) return std::nullopt;
    }
  }

  /// Whether the step in flight is; a device that died computes nothing more.
  bool is_computed() {
    const bool done = guard([&] { return sampler_.done(); });
    return done || !lost_.empty();
  }

  /// Guesses leave it open where a row goes on.
  bool can_go_ahead() {
    if (is_computed()) return false;
    return std::none_of(pending_->slices.begin(), pending_->slices.end(),
                        [](const Slice& slice) { return !slice.drafts.empty(); });
  }

  /// A device that died stays dead: nothing is put into its queue any more.
  template <typename Work>
  std::invoke_result_t<Work> guard(Work&& work) {
    using Made = std::invoke_result_t<Work>;
    if (graphs_ && lost_.empty()) lost_ = graphs_->error();
    if (!lost_.empty()) return Made();
    try {
      return work();
    } catch (const DeviceLost& lost) {
      lost_ = lost.reason;
      return Made();
    }
  }

  void finish() {
    StepResult result;
    result.step = pending_->step;
    guard([&] {
      Exec exec = exec_of(device_.queue(), arena_);
      result.slices = sampler_.finish(exec, *pending_, rows_);
      scorer_.finish(*pending_, result.slices);
      advance(*pending_, result.slices);
    });
    if (!lost_.empty()) result.device_error = lost_;
    result.device_us = now_us() - started_us_;
    pending_.reset();
    deliver_(std::move(result));
  }

  Exec exec_of(Queue queue, Arena& arena) const {
    Exec exec{queue, arena, options_.trace};
    exec.activations = options_.activations;
    return exec;
  }

  /// Queues the forward half.
  Forwarded begin(const StepPlan& plan) {
    Exec exec = exec_of(device_.queue(), arena_);
    arena_ = Arena(arena_begin_, arena_bytes_);
    apply(plan, exec);
    const bool decodes = std::all_of(plan.slices.begin(), plan.slices.end(),
                                     [](const Slice& slice) { return slice.decoding() && slice.count == 1; });
    const auto count = static_cast<int32_t>(plan.slices.size());
    const bool captured = graphs_ && decodes && options_.trace == nullptr;
    stage_.fill(plan, rows_, captured ? Graphs::padded(count) : 0);
    stage_.copy_to(device_);
    for (const Slice& slice : plan.slices) {
      Row& row = rows_[static_cast<size_t>(index(slice.row))];
      CHECK(slice.drafts.empty() || options_.kv.state_bytes == 0);  // a state cannot be taken back
      if (!slice.decoding()) row.length = slice.begin + slice.count;
      if (slice.decoding() && slice.drafts.empty()) ++row.length;
    }
    if (captured) {
      if (const Graphs::Outcome* outcome = graphs_->launch(stage_.shape())) {
        arena_.take(outcome->arena_bytes);
        return {{}, outcome->logits};
      }
    }
    if (!Scorer::scores(plan)) return {{}, forward(exec, stage_.shape())};
    Step step = step_of(exec, stage_.shape());
    return {run(step), {}};
  }

  /// Queues the sample half.
  void choose(const StepPlan& plan, Forwarded forwarded) {
    Exec exec = exec_of(device_.queue(), arena_);
    if (forwarded.hidden) {
      Step step = step_of(exec, stage_.shape());
      scorer_.begin(decoder_, step, forwarded.hidden, plan, rows_);
      if (step.shape.outputs > 0) {
        forwarded.logits = decoder_.logits(step, decoder_.outputs(step, forwarded.hidden));
      }
    }
    sampler_.begin(exec, forwarded.logits, plan, rows_, stage_, wait_for_masks(plan));
  }

  Step step_of(Exec& exec, const StepShape& shape) const {
    return {exec, shape, StepStage::inputs(memory_.block(), shape), cache_};
  }

  /// Depends on the shape alone.
  Tensor forward(Exec& exec, const StepShape& shape) const {
    Step step = step_of(exec, shape);
    const Tensor hidden = decoder_.outputs(step, run(step));
    return shape.outputs > 0 ? decoder_.logits(step, hidden) : Tensor{};
  }

  Tensor run(Step& step) const {
    take_next_tokens(step.exec, step.inputs.tokens, next_);
    return decoder_.run(step);
  }

  /// Rows that start, pages they get, and pages that are copied.
  void apply(const StepPlan& plan, Exec& exec) {
    for (const RowStart& start : plan.starts) {
      Row& row = rows_[static_cast<size_t>(index(start.row))];
      row = {start.request, start.tokens, 0};
      sampler_.start(start.row, *start.request, row.tokens);
    }
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (const PageGrant& grant : plan.pages) {
      const auto page = index(grant.page);
      const int32_t pages = cache_.tables[0].dims[1];
      CHECK(page >= 0 && page < options_.pages && grant.index < pages);
      pairs.emplace_back((grant.group * options_.rows + index(grant.row)) * pages + grant.index, page);
    }
    lists_.each_part(device_, pairs,
                     [&](Tensor places, Tensor values) { set_entries(exec, all_tables_, places, values); });
    pairs.clear();
    for (const PageCopy& copy : plan.copies) pairs.emplace_back(index(copy.from), index(copy.to));
    for (const StateCopy& state : plan.states) add_pairs(state, &pairs);
    lists_.each_part(device_, pairs, [&](Tensor from, Tensor to) { copy_whole_pages(exec, cache_, from, to); });
  }

  /// The state of a row is cut like a snapshot of it, and its parts are counted on from the last page.
  void add_pairs(const StateCopy& state, std::vector<std::pair<int32_t, int32_t>>* pairs) const {
    const int32_t parts = options_.kv.state_pages();
    CHECK(static_cast<int32_t>(state.pages.size()) == parts);
    for (int32_t i = 0; i < parts; ++i) {
      const int32_t own = options_.pages + index(state.row) * parts + i;
      const int32_t page = index(state.pages[static_cast<size_t>(i)]);
      pairs->emplace_back(state.restores ? page : own, state.restores ? own : page);
    }
  }

  StepMaskWords wait_for_masks(const StepPlan& plan) {
    const auto wanted = std::count_if(plan.slices.begin(), plan.slices.end(), [](const Slice& s) { return s.masked; });
    if (wanted == 0) return {};
    std::unique_lock lock(mutex_);
    masks_ready_.wait_for(lock, longest_mask_wait,
                          [&] { return stopping_ || static_cast<long>(masks_[plan.step].size()) >= wanted; });
    StepMaskWords masks = std::move(masks_[plan.step]);
    masks_.erase(masks_.begin(), masks_.upper_bound(plan.step));
    return masks;
  }

  /// Rows learn what was sampled.
  void advance(const StepPlan& plan, const std::vector<SliceResult>& results) {
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      const Slice& slice = plan.slices[i];
      Row& row = rows_[static_cast<size_t>(index(slice.row))];
      // Of the guesses only those that were right stay in the pages.
      if (!slice.drafts.empty()) row.length += std::max(static_cast<int32_t>(results[i].tokens.size()), 1);
      row.tokens.insert(row.tokens.end(), results[i].tokens.begin(), results[i].tokens.end());
    }
  }

  const Decoder& decoder_;
  Device& device_;
  const ModelExecutorOptions options_;
  const ExecutorMemory memory_;
  std::byte* const arena_begin_;
  const int64_t arena_bytes_;
  KvCache cache_;
  Tensor all_tables_;  // those of all groups, as one axis
  std::vector<Row> rows_;
  StepStage stage_;
  TableStage lists_;
  Tensor next_;  // [rows] i32: the last token of every row
  Arena arena_;
  Sampler sampler_;
  Scorer scorer_;
  std::optional<Graphs> graphs_;
  std::optional<StepPlan> pending_;  // its sample half is queued
  int64_t started_us_ = 0;
  std::string lost_;
  std::function<void(StepResult)> deliver_;
  Channel<StepPlan> plans_;
  std::mutex mutex_;  // guards masks_ and stopping_
  std::condition_variable masks_ready_;
  std::map<uint64_t, StepMaskWords> masks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::vector<GroupSpec> groups_of(const KvLayout& layout) {
  std::vector<GroupSpec> groups;
  for (const KvGroup& group : layout.groups) {
    const bool slides = group.window > 0;
    groups.push_back({slides ? GroupSpec::Kind::window : GroupSpec::Kind::full, group.window, layout.page_tokens});
  }
  if (layout.state_bytes > 0) {
    groups.push_back({GroupSpec::Kind::recurrent, 0, layout.snapshot_tokens(), layout.state_pages()});
  }
  return groups;
}

int64_t row_state_bytes(const ModelExecutorOptions& options) {
  return int64_t{options.rows} * options.kv.state_pages() * options.kv.page_bytes;
}

int64_t model_executor_bytes(const Decoder& decoder, Device& device, const ModelExecutorOptions& options) {
  return parts_of(decoder, device, options).total();
}

Result<std::unique_ptr<Executor>> make_model_executor(const Decoder& decoder, Device& device,
                                                      const ModelExecutorOptions& options) {
  const Parts parts = parts_of(decoder, device, options);
  ASSIGN_OR_RETURN(auto memory,
                   ExecutorMemory::take(device, parts.total(), parts.host_total(),
                                        int64_t{options.pages} * options.kv.page_bytes + row_state_bytes(options)));
  return std::unique_ptr<Executor>(std::make_unique<ModelExecutor>(decoder, device, options, parts, std::move(memory)));
}

}  // namespace quern
