#include "engine/pooling_executor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/channel.h"
#include "base/check.h"
#include "base/clock.h"
#include "engine/executor_memory.h"
#include "engine/rows.h"
#include "ops/pool.h"
#include "ops/rows.h"

namespace quern {
namespace {

constexpr int64_t i32_bytes = sizeof(int32_t);

/// Stands for memory where nothing is computed: addresses are counted from here and never touched.
std::byte* const nowhere = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);

int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int32_t pages_per_row(const ModelExecutorOptions& options) {
  return (options.max_model_len + options.kv.page_tokens - 1) / options.kv.page_tokens + 1;
}

/// A step's inputs have fixed places for the largest step: tokens, positions, types and outputs, rows and starts.
int64_t input_bytes(int64_t tokens, int64_t segments) { return (4 * tokens + 2 * segments + 1) * i32_bytes; }

/// Views of a step's inputs in memory, all or as many as the shape says.
StepInputs inputs_at(std::byte* memory, const StepShape& shape) {
  const auto take = [&](int32_t count) {
    const Tensor view = Tensor::dense(memory, Dtype::i32, count);
    memory += count * i32_bytes;
    return view;
  };
  StepInputs inputs;
  inputs.tokens = take(shape.tokens);
  inputs.types = take(shape.tokens);
  inputs.segments.positions = take(shape.tokens);
  inputs.segments.rows = take(shape.segments);
  inputs.segments.starts = take(shape.segments + 1);
  inputs.outputs = take(shape.outputs);
  return inputs;
}

TokenPool kind_of(Pooling pooling) {
  switch (pooling) {
    case Pooling::largest: return TokenPool::largest;
    case Pooling::weighted_mean: return TokenPool::weighted_mean;
    case Pooling::mean_sqrt_len: return TokenPool::mean_sqrt_len;
    default: return TokenPool::mean;
  }
}

/// The vectors of a step from its hidden states. Depends on the shape alone.
Tensor run(const PoolingModel& model, Step& step, Tensor sums) {
  Tensor vectors = model.decoder.forward(step);
  if (takes_all(model.pooler.pooling())) {
    const Dtype dtype = model.pooler.has_layers() ? step.exec.activations : Dtype::f32;
    const Tensor means = step.exec.arena.tensor(dtype, step.shape.segments, model.dim);
    mean_pool_into(step.exec, means, sums, vectors, step.inputs.segments, kind_of(model.pooler.pooling()));
    vectors = means;
  }
  if (!vectors || !model.pooler.has_layers()) return vectors;
  return model.pooler.apply(step, vectors);
}

int64_t measured_bytes(const PoolingModel& model, Queue queue, const ModelExecutorOptions& options,
                       const StepShape& shape) {
  Arena arena(nowhere, std::numeric_limits<int64_t>::max());
  Exec exec{queue, arena};
  exec.activations = options.activations;
  exec.measure = true;
  KvCache kv;
  kv.pool = nowhere;
  kv.layout = options.kv;
  kv.dtype = options.kv_dtype;
  const Tensor table = Tensor::dense(nowhere, Dtype::i32, options.rows, pages_per_row(options));
  kv.tables.assign(options.kv.groups.size(), table);
  Step step{exec, shape, inputs_at(nowhere, shape), kv};
  run(model, step, Tensor::dense(nowhere, Dtype::f32, options.rows, model.dim));
  return arena.peak();
}

/// Operations may choose other ways for few tokens, so that more is not always more: small steps are measured too.
int64_t arena_bytes(const PoolingModel& model, Queue queue, const ModelExecutorOptions& options) {
  const bool all = takes_all(model.pooler.pooling());
  const auto measured = [&](int32_t tokens) {
    const int32_t segments = std::min(tokens, options.rows);
    return measured_bytes(model, queue, options, {tokens, segments, all ? tokens : segments});
  };
  int64_t bytes = measured(options.max_tokens);
  for (int32_t tokens = 1; tokens < options.max_tokens; tokens *= 2) bytes = std::max(bytes, measured(tokens));
  return bytes;
}

/// Sizes of what the executor takes from its block of device memory, and of host memory, in order.
struct Parts {
  int64_t inputs, lists, tables, sums, arena;
  int64_t host_inputs, host_lists, host_vectors;
  int64_t total() const { return inputs + lists + tables + sums + arena; }
  int64_t host_total() const { return host_inputs + host_lists + host_vectors; }
};

Parts parts_of(const PoolingModel& model, Device& device, const ModelExecutorOptions& options) {
  const auto groups = static_cast<int64_t>(options.kv.groups.size());
  Parts parts{};
  parts.inputs = parts.host_inputs = align(input_bytes(options.max_tokens, options.rows));
  parts.lists = align(TableStage::bytes);
  parts.tables = align(groups * options.rows * pages_per_row(options) * i32_bytes);
  parts.sums = takes_all(model.pooler.pooling()) ? align(int64_t{options.rows} * model.dim * 4) : 0;
  parts.arena = align(arena_bytes(model, device.queue(), options));
  parts.host_lists = align(TableStage::host_bytes);
  parts.host_vectors = align(int64_t{options.rows} * model.pooler.width() * 4);
  return parts;
}

/// Cuts and normalises as the request says.
SliceResult finished(std::vector<float> values, const Request& request) {
  SliceResult result;
  if (request.dimensions > 0 && static_cast<size_t>(request.dimensions) < values.size()) {
    values.resize(static_cast<size_t>(request.dimensions));
  }
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  if (!std::isfinite(squares)) {
    result.error = "the model's output is not finite";
    result.not_finite = true;
    return result;
  }
  if (request.normalize && squares > 0) {
    const double factor = 1.0 / std::sqrt(squares);
    for (float& value : values) value = static_cast<float>(value * factor);
  }
  result.vector = std::move(values);
  return result;
}

/// Thread: executor, but for submit() and the destructor.
class PoolingExecutor final : public Executor {
 public:
  PoolingExecutor(const PoolingModel& model, Device& device, const ModelExecutorOptions& options, const Parts& parts,
                  ExecutorMemory memory)
      : model_(model),
        device_(device),
        options_(options),
        memory_(std::move(memory)),
        host_vectors_(memory_.host() + parts.host_inputs + parts.host_lists),
        rows_(static_cast<size_t>(options.rows)),
        lists_(memory_.block() + parts.inputs, memory_.host() + parts.host_inputs),
        arena_begin_(memory_.block() + parts.total() - parts.arena),
        arena_bytes_(parts.arena) {
    cache_.pool = memory_.pool();
    cache_.pages = options.pages;
    cache_.layout = options.kv;
    cache_.dtype = options.kv_dtype;
    const int32_t pages = pages_per_row(options);
    const auto groups = static_cast<int32_t>(options.kv.groups.size());
    std::byte* const tables = memory_.block() + parts.inputs + parts.lists;
    all_tables_ = Tensor::dense(tables, Dtype::i32, groups * options.rows * pages);
    for (int32_t group = 0; group < groups; ++group) {
      const int64_t offset = int64_t{group} * options.rows * pages * i32_bytes;
      cache_.tables.push_back(Tensor::dense(tables + offset, Dtype::i32, options.rows, pages));
    }
    sums_ = Tensor::dense(tables + parts.tables, Dtype::f32, options.rows, model.dim);
  }

  ~PoolingExecutor() override {
    plans_.close();
    if (thread_.joinable()) thread_.join();
  }

  void on_result(std::function<void(StepResult)> deliver) override {
    deliver_ = std::move(deliver);
    thread_ = std::thread([this] {
      while (const auto plan = plans_.receive()) deliver_(run_step(*plan));
    });
  }
  void submit(StepPlan plan) override { plans_.try_send(std::move(plan)); }
  void provide(StepMasks /*masks*/) override {}

 private:
  /// A device that died stays dead: nothing is put into its queue any more.
  StepResult run_step(const StepPlan& plan) {
    StepResult result;
    result.step = plan.step;
    const int64_t start_us = now_us();
    try {
      if (lost_.empty()) result.slices = compute(plan);
    } catch (const DeviceLost& lost) {
      lost_ = lost.reason;
    }
    if (!lost_.empty()) result.device_error = lost_;
    result.device_us = now_us() - start_us;
    return result;
  }

  std::vector<SliceResult> compute(const StepPlan& plan) {
    Arena arena(arena_begin_, arena_bytes_);
    Exec exec{device_.queue(), arena, options_.trace};
    exec.activations = options_.activations;
    for (const RowStart& start : plan.starts) {
      rows_[static_cast<size_t>(index(start.row))] = {start.request, start.tokens, 0};
    }
    set_pages(exec, plan);
    const StepShape shape = stage(plan);
    Step step{exec, shape, inputs_at(memory_.block(), shape), cache_};
    const Tensor vectors = run(model_, step, sums_);
    const int32_t count = vectors ? vectors.dims[0] : 0;
    const int64_t row_bytes = int64_t{model_.pooler.width()} * dtype_bytes(vectors.dtype);
    for (int32_t i = 0; i < count; ++i) {
      const std::byte* const row = vectors.data + i * vectors.strides[0] * dtype_bytes(vectors.dtype);
      device_.copy_out(host_vectors_ + i * row_bytes, row, row_bytes);
    }
    device_.wait();
    return results(plan, vectors.dtype);
  }

  /// Pages as the plan grants them, or, where keys and values live for one step only, one after the other.
  void set_pages(Exec& exec, const StepPlan& plan) {
    const int32_t pages = pages_per_row(options_);
    std::vector<std::pair<int32_t, int32_t>> pairs;
    const auto grant = [&](int32_t group, RowId row, int32_t entry, int32_t page) {
      CHECK(page >= 0 && page < options_.pages && entry < pages);
      pairs.emplace_back((group * options_.rows + index(row)) * pages + entry, page);
    };
    for (const PageGrant& page : plan.pages) grant(page.group, page.row, page.index, index(page.page));
    if (!model_.causal) {
      int32_t next = 0;
      for (const Slice& slice : plan.slices) {
        for (int32_t entry = 0; entry * options_.kv.page_tokens < slice.count; ++entry) {
          grant(0, slice.row, entry, next++);
        }
      }
    }
    lists_.each_part(device_, pairs,
                     [&](Tensor places, Tensor values) { set_entries(exec, all_tables_, places, values); });
    pairs.clear();
    for (const PageCopy& copy : plan.copies) pairs.emplace_back(index(copy.from), index(copy.to));
    lists_.each_part(device_, pairs, [&](Tensor from, Tensor to) { copy_whole_pages(exec, cache_, from, to); });
  }

  /// Puts the inputs of a step on the device.
  StepShape stage(const StepPlan& plan) {
    std::vector<int32_t> tokens, types, positions, rows, starts, outputs;
    for (const Slice& slice : plan.slices) {
      const Row& row = rows_[static_cast<size_t>(index(slice.row))];
      const auto first = static_cast<int32_t>(tokens.size());
      const int32_t second = row.request->second_text;
      starts.push_back(first);
      rows.push_back(index(slice.row));
      for (int32_t i = slice.begin; i < slice.begin + slice.count; ++i) {
        tokens.push_back(row.tokens[static_cast<size_t>(i)]);
        types.push_back(second > 0 && i >= second ? 1 : 0);
        positions.push_back(i);
        if (is_output(slice, i)) outputs.push_back(first + i - slice.begin);
      }
    }
    starts.push_back(static_cast<int32_t>(tokens.size()));
    const StepShape shape{static_cast<int>(tokens.size()), static_cast<int>(rows.size()),
                          static_cast<int>(outputs.size())};
    CHECK(shape.tokens <= options_.max_tokens && shape.segments <= options_.rows);
    auto* to = reinterpret_cast<int32_t*>(memory_.host());
    for (const auto* list : {&tokens, &types, &positions, &rows, &starts, &outputs}) {
      to = std::copy(list->begin(), list->end(), to);
    }
    device_.copy_in(memory_.block(), memory_.host(), reinterpret_cast<std::byte*>(to) - memory_.host());
    return shape;
  }

  bool is_output(const Slice& slice, int32_t position) const {
    switch (model_.pooler.pooling()) {
      case Pooling::first: return position == 0;
      case Pooling::last: return slice.finishes_prompt_output && position + 1 == slice.begin + slice.count;
      default: return true;
    }
  }

  std::vector<SliceResult> results(const StepPlan& plan, Dtype dtype) const {
    const int32_t width = model_.pooler.width();
    std::vector<SliceResult> all(plan.slices.size());
    int64_t row = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const Slice& slice = plan.slices[i];
      if (slice.samples) all[i].error = "this model computes no text";
      // Only what is made of all tokens has a row for a slice that does not end its prompt.
      if (!takes_all(model_.pooler.pooling()) && !slice.finishes_prompt_output) continue;
      const std::byte* const from = host_vectors_ + row++ * width * dtype_bytes(dtype);
      if (!slice.finishes_prompt_output) continue;
      std::vector<float> values(static_cast<size_t>(width));
      for (int32_t k = 0; k < width; ++k) values[static_cast<size_t>(k)] = Pooler::value(from, dtype, k);
      all[i] = finished(std::move(values), *rows_[static_cast<size_t>(index(slice.row))].request);
    }
    return all;
  }

  const PoolingModel model_;
  Device& device_;
  const ModelExecutorOptions options_;
  const ExecutorMemory memory_;
  std::byte* const host_vectors_;
  KvCache cache_;
  Tensor all_tables_;  // those of all groups, as one axis
  Tensor sums_;        // [rows, dim] f32, for means
  std::vector<Row> rows_;
  TableStage lists_;
  std::byte* const arena_begin_;
  const int64_t arena_bytes_;
  std::string lost_;
  std::function<void(StepResult)> deliver_;
  Channel<StepPlan> plans_;
  std::thread thread_;
};

}  // namespace

int32_t step_pages(int32_t max_tokens, int32_t rows, int32_t page_tokens) { return max_tokens / page_tokens + rows; }

int64_t pooling_executor_bytes(const PoolingModel& model, Device& device, const ModelExecutorOptions& options) {
  return parts_of(model, device, options).total();
}

Result<std::unique_ptr<Executor>> make_pooling_executor(const PoolingModel& model, Device& device,
                                                        const ModelExecutorOptions& options) {
  const Parts parts = parts_of(model, device, options);
  ASSIGN_OR_RETURN(auto memory, ExecutorMemory::take(device, parts.total(), parts.host_total(),
                                                     int64_t{options.pages} * options.kv.page_bytes));
  return std::unique_ptr<Executor>(std::make_unique<PoolingExecutor>(model, device, options, parts, std::move(memory)));
}

}  // namespace quern
