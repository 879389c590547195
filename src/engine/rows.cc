#include "engine/rows.h"

#include "base/check.h"

namespace quern {
namespace {

constexpr int64_t i32_bytes = sizeof(int32_t);

Tensor view(std::byte* memory, int64_t offset, int32_t count) {
  return Tensor::dense(memory + offset * i32_bytes, Dtype::i32, count);
}

}  // namespace

StepStage::StepStage(std::byte* memory, int32_t max_tokens, int32_t max_segments)
    : memory_(memory), max_tokens_(max_tokens), max_segments_(max_segments) {}

int64_t StepStage::bytes(int32_t max_tokens, int32_t max_segments) {
  return (3 * int64_t{max_tokens} + 2 * int64_t{max_segments} + 1) * i32_bytes;
}

void StepStage::fill(const StepPlan& plan, const std::vector<Row>& rows) {
  for (auto* list : {&tokens_, &positions_, &starts_, &row_ids_, &outputs_, &first_output_, &lengths_}) list->clear();
  for (const Slice& slice : plan.slices) {
    const Row& row = rows[static_cast<size_t>(index(slice.row))];
    const int32_t begin = slice.decoding() ? row.length : slice.begin;
    const auto first = static_cast<int32_t>(tokens_.size());
    starts_.push_back(first);
    row_ids_.push_back(index(slice.row));
    first_output_.push_back(static_cast<int32_t>(outputs_.size()));
    for (int32_t i = 0; i < slice.count; ++i) {
      const bool draft = slice.decoding() && i > 0;
      tokens_.push_back(draft ? slice.drafts[static_cast<size_t>(i - 1)] : row.tokens[static_cast<size_t>(begin + i)]);
      positions_.push_back(begin + i);
      if (slice.samples && (slice.decoding() || i + 1 == slice.count)) outputs_.push_back(first + i);
    }
    lengths_.push_back(begin + slice.count);
  }
  starts_.push_back(static_cast<int32_t>(tokens_.size()));
  first_output_.push_back(static_cast<int32_t>(outputs_.size()));
  shape_ = {static_cast<int>(tokens_.size()), static_cast<int>(row_ids_.size()), static_cast<int>(outputs_.size())};
  CHECK(shape_.tokens <= max_tokens_ && shape_.segments <= max_segments_);
}

StepInputs StepStage::inputs() const {
  const int64_t segments_at = 3 * int64_t{max_tokens_};
  StepInputs inputs;
  inputs.tokens = view(memory_, 0, shape_.tokens);
  inputs.segments.positions = view(memory_, max_tokens_, shape_.tokens);
  inputs.outputs = view(memory_, 2 * int64_t{max_tokens_}, shape_.outputs);
  inputs.segments.rows = view(memory_, segments_at, shape_.segments);
  inputs.segments.starts = view(memory_, segments_at + max_segments_, shape_.segments + 1);
  return inputs;
}

void StepStage::copy_to(Device& device) const {
  const auto send = [&](const Tensor& to, const std::vector<int32_t>& from) {
    device.copy_in(to.data, reinterpret_cast<const std::byte*>(from.data()),
                   static_cast<int64_t>(from.size()) * i32_bytes);
  };
  const StepInputs to = inputs();
  send(to.tokens, tokens_);
  send(to.segments.positions, positions_);
  send(to.outputs, outputs_);
  send(to.segments.rows, row_ids_);
  send(to.segments.starts, starts_);
}

}  // namespace quern
