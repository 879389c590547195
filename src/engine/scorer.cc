#include "engine/scorer.h"

#include <algorithm>
#include <memory>

namespace quern {

Scorer::Scorer(Device& device, std::byte* host, int32_t max_tokens, int32_t block_tokens, SeeLogits see)
    : device_(device),
      block_tokens_(block_tokens),
      see_(std::move(see)),
      wanted_(reinterpret_cast<SampleRow*>(host)),
      sampled_(reinterpret_cast<Sampled*>(host + max_tokens * int64_t{sizeof(SampleRow)})),
      logits_(device) {
  std::uninitialized_default_construct_n(wanted_, max_tokens);
  std::uninitialized_default_construct_n(sampled_, max_tokens);
}

int64_t Scorer::host_bytes(int32_t max_tokens) {
  return max_tokens * static_cast<int64_t>(sizeof(SampleRow) + sizeof(Sampled));
}

bool Scorer::scores(const StepPlan& plan) {
  return std::ranges::any_of(plan.slices, [](const Slice& slice) { return slice.scores() > 0; });
}

void Scorer::begin(const Decoder& decoder, Step& step, Tensor hidden, const StepPlan& plan, std::span<const Row> rows) {
  used_ = 0;
  wide_.clear();
  int32_t first = 0;  // token of the slice in the step
  for (const Slice& slice : plan.slices) {
    const Row& row = rows[static_cast<size_t>(index(slice.row))];
    for (int32_t position = slice.score_begin; position < slice.score_end; position += block_tokens_) {
      const int32_t count = std::min(block_tokens_, slice.score_end - position);
      score(decoder, step, hidden.rows(first + position - slice.begin, count), row, position);
    }
    first += slice.count;
  }
}

void Scorer::score(const Decoder& decoder, Step& step, Tensor hidden, const Row& row, int32_t position) {
  const Arena::Scope scope(step.exec.arena);
  const int32_t count = hidden.dims[0];
  const Tensor logits = decoder.logits_of_hidden(step, hidden);
  const LogprobsWanted asked = wanted_of_prompt(row.request->sampling);
  for (int32_t i = 0; i < count; ++i) {
    SampleRow& wanted = wanted_[used_ + i];
    wanted = {};
    wanted.forced = row.tokens[static_cast<size_t>(position + i + 1)];
    wanted.logprobs = asked.wide() ? 0 : asked.best;
  }
  const auto size = static_cast<size_t>(count);
  sample(step.exec, logits, {wanted_ + used_, size}, {sampled_ + used_, size});
  if (asked.wide()) add_wide(logits, asked);
  if (see_) show(logits, row, position);
  used_ += count;
}

void Scorer::add_wide(Tensor logits, const LogprobsWanted& wanted) {
  logits_.clear();
  for (int32_t i = 0; i < logits.dims[0]; ++i) logits_.add(logits.rows(i, 1));
  device_.wait();
  const auto first = static_cast<size_t>(used_);
  wide_.resize(first + logits_.size());
  for (size_t i = 0; i < logits_.size(); ++i) {
    const Sampled& sampled = sampled_[first + i];
    if (sampled.status == SampleStatus::ok) wide_[first + i] = wide_logprobs(logits_[i], sampled.token, wanted);
  }
}

void Scorer::show(Tensor logits, const Row& row, int32_t position) {
  const auto size = static_cast<size_t>(logits.dims[0]);
  ScoredLogits seen{row.request->id, position, logits.dims[1], logits.as<float>(), {}, {sampled_ + used_, size}};
  seen.followers = std::span(row.tokens).subspan(static_cast<size_t>(position) + 1, size);
  if (!device_.host_addressable()) {
    seen_.resize(size * static_cast<size_t>(seen.vocab));
    device_.copy_out(reinterpret_cast<std::byte*>(seen_.data()), logits.data,
                     static_cast<int64_t>(seen_.size() * sizeof(float)));
    seen.logits = seen_.data();
  }
  device_.wait();
  see_(seen);
}

void Scorer::finish(const StepPlan& plan, std::span<SliceResult> results) const {
  size_t next = 0;
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    for (int32_t k = 0; k < plan.slices[i].scores(); ++k, ++next) {
      const Sampled& sampled = sampled_[next];
      if (sampled.status != SampleStatus::ok) fail_row(results[i], sampled.status);
      const bool wide = next < wide_.size() && wide_[next].rank > 0;
      results[i].prompt_logprobs.push_back(wide ? wide_[next] : logprobs_of(sampled));
    }
  }
}

TokenLogprobs logprobs_of(const Sampled& sampled) {
  TokenLogprobs logprobs{sampled.logprob, {}, sampled.rank};
  for (int32_t i = 0; i < sampled.top_count; ++i) {
    const TopLogprob& top = sampled.top[static_cast<size_t>(i)];
    logprobs.top.emplace_back(top.token, top.logprob);
  }
  return logprobs;
}

void fail_row(SliceResult& result, SampleStatus status) {
  result.not_finite = status == SampleStatus::not_finite;
  result.error = result.not_finite ? "the model's logits are not finite" : "no token is allowed to follow";
}

}  // namespace quern
