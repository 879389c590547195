#include "engine/model_executor.h"

#include <algorithm>
#include <condition_variable>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/channel.h"
#include "base/clock.h"
#include "engine/rows.h"
#include "engine/sampler.h"
#include "ops/copy_pages.h"

namespace quern {
namespace {

int32_t pages_per_row(const ModelExecutorOptions& options) {
  return (options.max_model_len + options.kv.page_tokens - 1) / options.kv.page_tokens + 1;
}

int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Sizes of what the executor takes from its one block, in order.
struct Parts {
  int64_t stage, tables, copies, arena;
  int64_t total() const { return stage + tables + copies + arena; }
};

Parts parts_of(const Decoder& decoder, Queue queue, const ModelExecutorOptions& options) {
  const auto groups = static_cast<int64_t>(options.kv.groups.size());
  const StepShape most{options.max_tokens, options.rows, options.rows};
  return {align(StepStage::bytes(options.max_tokens, options.rows)),
          align(groups * options.rows * pages_per_row(options) * dtype_bytes(Dtype::i32)),
          align(2 * int64_t{options.rows} * dtype_bytes(Dtype::i32)),
          align(decoder.activation_bytes(queue, most, pages_per_row(options) * options.kv.page_tokens) +
                sample_scratch_bytes(options.rows, options.vocab))};
}

/// Thread: executor, but for submit(), provide() and the destructor.
class ModelExecutor final : public Executor {
 public:
  ModelExecutor(const Decoder& decoder, Device& device, const ModelExecutorOptions& options, std::byte* block,
                std::byte* pool)
      : decoder_(decoder),
        device_(device),
        options_(options),
        parts_(parts_of(decoder, device.queue(), options)),
        block_(block),
        rows_(static_cast<size_t>(options.rows)),
        stage_(block, options.max_tokens, options.rows),
        arena_(block + parts_.stage + parts_.tables + parts_.copies, parts_.arena),
        sampler_(options.rows, options.vocab) {
    cache_.pool = pool;
    cache_.layout = options.kv;
    cache_.dtype = options.kv_dtype;
    const int32_t pages = pages_per_row(options);
    for (size_t group = 0; group < options.kv.groups.size(); ++group) {
      const int64_t offset = static_cast<int64_t>(group) * options.rows * pages * dtype_bytes(Dtype::i32);
      cache_.tables.push_back(Tensor::dense(block + parts_.stage + offset, Dtype::i32, options.rows, pages));
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
    device_.release(block_);
    device_.release(cache_.pool);
  }

  void on_result(std::function<void(StepResult)> deliver) override {
    deliver_ = std::move(deliver);
    thread_ = std::thread([this] {
      while (auto plan = plans_.receive()) deliver_(run(*plan));
    });
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
  StepResult run(const StepPlan& plan) {
    StepResult result;
    result.step = plan.step;
    const int64_t start = now_us();
    if (lost_.empty()) {
      try {
        result.slices = compute(plan);
      } catch (const DeviceLost& lost) {
        lost_ = lost.reason;
      }
    }
    if (!lost_.empty()) result.device_error = lost_;
    result.device_us = now_us() - start;
    return result;
  }

  std::vector<SliceResult> compute(const StepPlan& plan) {
    Exec exec{device_.queue(), arena_, options_.trace};
    const Arena::Scope scope(arena_);
    apply(plan, exec);
    stage_.fill(plan, rows_);
    stage_.copy_to(device_);
    Step step{exec, stage_.shape(), stage_.inputs(), cache_};
    const Tensor hidden = decoder_.forward(step);
    Tensor logits;
    if (step.shape.outputs > 0) logits = decoder_.logits(step, hidden);
    const StepMaskWords masks = wait_for_masks(plan);
    std::vector<SliceResult> results = sampler_.sample(exec, logits, plan, rows_, stage_, masks);
    advance(plan, results);
    return results;
  }

  /// Rows that start, pages they get, and pages that are copied.
  void apply(const StepPlan& plan, Exec& exec) {
    for (const RowStart& start : plan.starts) {
      Row& row = rows_[static_cast<size_t>(index(start.row))];
      row = {start.request, start.tokens, 0};
      sampler_.start(start.row, *start.request, row.tokens);
    }
    for (const PageGrant& grant : plan.pages) {
      const auto page = index(grant.page);
      const Tensor& table = cache_.tables[static_cast<size_t>(grant.group)];
      CHECK(page >= 0 && page < options_.pages && grant.index < table.dims[1]);
      device_.copy_in(reinterpret_cast<std::byte*>(table.row<int32_t>(index(grant.row)) + grant.index),
                      reinterpret_cast<const std::byte*>(&page), sizeof page);
    }
    for (size_t begin = 0; begin < plan.copies.size(); begin += static_cast<size_t>(options_.rows)) {
      const size_t count = std::min(plan.copies.size() - begin, static_cast<size_t>(options_.rows));
      copy(exec, std::span(plan.copies).subspan(begin, count));
    }
  }

  void copy(Exec& exec, std::span<const PageCopy> copies) {
    const auto count = static_cast<int32_t>(copies.size());
    const int64_t bytes = count * int64_t{dtype_bytes(Dtype::i32)};
    std::byte* at = block_ + parts_.stage + parts_.tables;
    const Tensor from = Tensor::dense(at, Dtype::i32, count);
    const Tensor to = Tensor::dense(at + parts_.copies / 2 / 4 * 4, Dtype::i32, count);
    std::vector<int32_t> sources;
    std::vector<int32_t> targets;
    for (const PageCopy& page : copies) {
      sources.push_back(index(page.from));
      targets.push_back(index(page.to));
    }
    device_.copy_in(from.data, reinterpret_cast<const std::byte*>(sources.data()), bytes);
    device_.copy_in(to.data, reinterpret_cast<const std::byte*>(targets.data()), bytes);
    copy_pages(exec, cache_.pool, options_.kv.page_bytes, from, to);
    device_.wait();
  }

  StepMaskWords wait_for_masks(const StepPlan& plan) {
    const auto wanted = std::count_if(plan.slices.begin(), plan.slices.end(), [](const Slice& s) { return s.masked; });
    if (wanted == 0) return {};
    std::unique_lock lock(mutex_);
    masks_ready_.wait(lock, [&] { return stopping_ || static_cast<long>(masks_[plan.step].size()) >= wanted; });
    StepMaskWords masks = std::move(masks_[plan.step]);
    masks_.erase(masks_.begin(), masks_.upper_bound(plan.step));
    return masks;
  }

  /// Moves every row to where the step has brought it.
  void advance(const StepPlan& plan, const std::vector<SliceResult>& results) {
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      const Slice& slice = plan.slices[i];
      Row& row = rows_[static_cast<size_t>(index(slice.row))];
      const auto made = static_cast<int32_t>(results[i].tokens.size());
      // Of a decoding slice only the tokens whose guess was right stay in the pages.
      row.length = slice.decoding() ? row.length + std::max(made, 1) : slice.begin + slice.count;
      row.tokens.insert(row.tokens.end(), results[i].tokens.begin(), results[i].tokens.end());
    }
  }

  const Decoder& decoder_;
  Device& device_;
  const ModelExecutorOptions options_;
  const Parts parts_;
  std::byte* block_;
  KvCache cache_;
  std::vector<Row> rows_;
  StepStage stage_;
  Arena arena_;
  Sampler sampler_;
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

int64_t model_executor_bytes(const Decoder& decoder, Queue queue, const ModelExecutorOptions& options) {
  return parts_of(decoder, queue, options).total();
}

Result<std::unique_ptr<Executor>> make_model_executor(const Decoder& decoder, Device& device,
                                                      const ModelExecutorOptions& options) {
  ASSIGN_OR_RETURN(std::byte* const block, device.allocate(model_executor_bytes(decoder, device.queue(), options)));
  auto pool = device.allocate(int64_t{options.pages} * options.kv.page_bytes);
  if (!pool.ok()) {
    device.release(block);
    return std::move(pool).error();
  }
  return std::unique_ptr<Executor>(std::make_unique<ModelExecutor>(decoder, device, options, block, *pool));
}

}  // namespace quern
