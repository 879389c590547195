#include "engine/rows.h"

#include <algorithm>

#include "base/check.h"
#include "ops/copy_pages.h"

namespace quern {
namespace {

constexpr int64_t i32_bytes = sizeof(int32_t);

}  // namespace

StepStage::StepStage(std::byte* memory, std::byte* host, int32_t max_tokens, int32_t max_segments)
    : memory_(memory), host_(host), max_tokens_(max_tokens), max_segments_(max_segments) {}

int64_t StepStage::bytes(int32_t max_tokens, int32_t max_segments) {
  return (3 * int64_t{max_tokens} + 2 * int64_t{max_segments} + 1) * i32_bytes;
}

void StepStage::fill(const StepPlan& plan, std::span<const Row> rows, int32_t padded) {
  for (auto* list : {&tokens_, &positions_, &starts_, &row_ids_, &outputs_, &first_output_, &lengths_}) list->clear();
  for (const Slice& slice : plan.slices) {
    const Row& row = rows[static_cast<size_t>(index(slice.row))];
    const int32_t begin = slice.decoding() ? row.length : slice.begin;
    const auto first = static_cast<int32_t>(tokens_.size());
    starts_.push_back(first);
    row_ids_.push_back(index(slice.row));
    first_output_.push_back(static_cast<int32_t>(outputs_.size()));
    for (int32_t i = 0; i < slice.count; ++i) {
      const int32_t token = !slice.decoding() ? row.tokens[static_cast<size_t>(begin + i)]
                            : i > 0           ? slice.drafts[static_cast<size_t>(i - 1)]
                                              : -1 - index(slice.row);
      tokens_.push_back(token);
      positions_.push_back(begin + i);
      if (slice.samples && (slice.decoding() || i + 1 == slice.count)) outputs_.push_back(first + i);
    }
    lengths_.push_back(begin + slice.count);
  }
  first_output_.push_back(static_cast<int32_t>(outputs_.size()));
  // Nobody's tokens are segments of their own, so that a step of one token per segment stays one.
  for (auto token = static_cast<int32_t>(tokens_.size()); token < padded; ++token) {
    starts_.push_back(token);
    row_ids_.push_back(0);
    outputs_.push_back(token);
    tokens_.push_back(0);
    positions_.push_back(-1);
  }
  starts_.push_back(static_cast<int32_t>(tokens_.size()));
  shape_ = {static_cast<int>(tokens_.size()), static_cast<int>(row_ids_.size()), static_cast<int>(outputs_.size())};
  CHECK(shape_.tokens <= max_tokens_ && shape_.segments <= max_segments_);
}

StepInputs StepStage::inputs(std::byte* memory, const StepShape& shape) {
  const auto take = [&](int32_t count) {
    const Tensor view = Tensor::dense(memory, Dtype::i32, count);
    memory += count * i32_bytes;
    return view;
  };
  StepInputs inputs;
  inputs.tokens = take(shape.tokens);
  inputs.segments.positions = take(shape.tokens);
  inputs.outputs = take(shape.outputs);
  inputs.segments.rows = take(shape.segments);
  inputs.segments.starts = take(shape.segments + 1);
  return inputs;
}

void StepStage::copy_to(Device& device) {
  turn_ = 1 - turn_;
  std::byte* const block = host_ + turn_ * bytes(max_tokens_, max_segments_);
  auto* to = reinterpret_cast<int32_t*>(block);
  for (const auto* list : {&tokens_, &positions_, &outputs_, &row_ids_, &starts_}) {
    to = std::copy(list->begin(), list->end(), to);
  }
  device.copy_in(memory_, block, reinterpret_cast<std::byte*>(to) - block);
}

void copy_whole_pages(Exec& exec, const KvCache& cache, Tensor from, Tensor to) {
  const int64_t extent = cache.layout.extent_bytes();
  for (int64_t begin = 0; begin < cache.layout.page_bytes; begin += extent) {
    copy_pages(exec, cache.pool + begin * cache.pages, extent, from, to);
  }
}

void TableStage::send(Device& device, std::span<const std::pair<int32_t, int32_t>> pairs) {
  turn_ = (turn_ + 1) % 4;
  std::byte* const block = host_ + turn_ * bytes;
  auto* to = reinterpret_cast<int32_t*>(block);
  for (const auto& pair : pairs) *to++ = pair.first;
  for (const auto& pair : pairs) *to++ = pair.second;
  device.copy_in(memory_, block, static_cast<int64_t>(pairs.size()) * 2 * i32_bytes);
}

}  // namespace quern
