#include "engine/sampler.h"

#include <algorithm>

namespace quern {
namespace {

bool has_penalties(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1.0F || sampling.frequency_penalty != 0.0F || sampling.presence_penalty != 0.0F;
}

const char* failure_text(SampleStatus status) {
  return status == SampleStatus::not_finite ? "the model's logits are not finite" : "no token is allowed to follow";
}

TokenLogprobs logprobs_of(const Sampled& sampled) {
  TokenLogprobs logprobs{sampled.logprob, {}};
  for (int32_t i = 0; i < sampled.top_count; ++i) {
    const TopLogprob& top = sampled.top[static_cast<size_t>(i)];
    logprobs.top.emplace_back(top.token, top.logprob);
  }
  return logprobs;
}

}  // namespace

void Sampler::start(RowId row, const Request& request, std::span<const int32_t> tokens) {
  TokenCounts& counts = counts_[static_cast<size_t>(index(row))];
  counts.clear();
  if (!has_penalties(request.sampling)) return;
  const size_t prompt = std::min(request.prompt.size(), tokens.size());
  counts.add_prompt(tokens.first(prompt));
  for (const int32_t token : tokens.subspan(prompt)) counts.add_output(token);
}

std::vector<SliceResult> Sampler::sample(Exec& exec, Tensor logits, const StepPlan& plan, const std::vector<Row>& rows,
                                         const StepStage& stage, const StepMaskWords& masks) {
  std::vector<SliceResult> results(plan.slices.size());
  std::vector<size_t> active;  // slices that have a token to choose
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    const auto mask = masks.find(index(slice.row));
    if (slice.masked && (mask == masks.end() || !mask->second)) {
      results[i].error = "the constraint of the request refused its last token";
    } else if (slice.finishes_prompt_output) {
      results[i].error = "this model computes no pooled output";
    } else if (slice.samples) {
      active.push_back(i);
    }
  }
  // One round for each token a slice can add: a guess counts only if the round before chose it.
  for (int32_t round = 0; !active.empty(); ++round) {
    std::vector<SampleRow> wanted;
    std::vector<int32_t> at;
    for (const size_t i : active) {
      const Slice& slice = plan.slices[i];
      const int32_t output = stage.first_output()[i] + round;
      const int32_t position = stage.length_after(i) - (slice.decoding() ? slice.count - 1 - round : 0);
      wanted.push_back(sample_row(slice, rows[static_cast<size_t>(index(slice.row))], results[i], masks, position));
      at.push_back(output);
    }
    std::vector<Sampled> sampled = sample_outputs(exec, logits, at, wanted);
    std::vector<size_t> going_on;
    for (size_t k = 0; k < active.size(); ++k) {
      const Slice& slice = plan.slices[active[k]];
      keep(slice, *rows[static_cast<size_t>(index(slice.row))].request, sampled[k], &results[active[k]]);
      const bool guessed = static_cast<size_t>(round) < slice.drafts.size() &&
                           slice.drafts[static_cast<size_t>(round)] == sampled[k].token;
      if (guessed) going_on.push_back(active[k]);
    }
    active = std::move(going_on);
  }
  return results;
}

std::vector<Sampled> Sampler::sample_outputs(Exec& exec, Tensor logits, std::span<const int32_t> at,
                                             std::span<const SampleRow> wanted) {
  std::vector<Sampled> sampled(at.size());
  // Runs of neighbouring outputs are one call; without drafts that is all of them.
  for (size_t begin = 0; begin < at.size();) {
    size_t end = begin + 1;
    while (end < at.size() && at[end] == at[end - 1] + 1) ++end;
    const auto count = static_cast<int32_t>(end - begin);
    quern::sample(exec, logits.rows(at[begin], count), wanted.subspan(begin, end - begin),
                  std::span(sampled).subspan(begin, end - begin));
    begin = end;
  }
  return sampled;
}

SampleRow Sampler::sample_row(const Slice& slice, const Row& row, const SliceResult& so_far, const StepMaskWords& masks,
                              int32_t position) {
  const Request& request = *row.request;
  const SamplingParams& sampling = request.sampling;
  SampleRow wanted;
  wanted.temperature = sampling.temperature;
  wanted.min_p = sampling.min_p;
  wanted.top_k = sampling.top_k;
  wanted.top_p = sampling.top_p;
  wanted.repetition_penalty = sampling.repetition_penalty;
  wanted.frequency_penalty = sampling.frequency_penalty;
  wanted.presence_penalty = sampling.presence_penalty;
  wanted.seed = sampling.seed;
  wanted.position = position;
  wanted.logprobs = sampling.logprobs;
  wanted.counts = counts_[static_cast<size_t>(index(slice.row))].entries();
  wanted.biases = sampling.logit_bias;
  const auto generated = static_cast<int32_t>(row.tokens.size() - request.prompt.size() + so_far.tokens.size());
  if (generated < request.min_tokens) wanted.banned = ending_tokens(slice.row, request);
  if (slice.masked) wanted.allowed = *masks.at(index(slice.row));
  return wanted;
}

std::span<const int32_t> Sampler::ending_tokens(RowId row, const Request& request) {
  std::vector<int32_t>& ending = ending_[static_cast<size_t>(index(row))];
  ending = request.end_tokens;
  ending.insert(ending.end(), request.stop_tokens.begin(), request.stop_tokens.end());
  std::erase_if(ending, [&](int32_t token) { return token < 0 || token >= vocab_; });
  return ending;
}

void Sampler::keep(const Slice& slice, const Request& request, const Sampled& sampled, SliceResult* result) {
  if (sampled.status != SampleStatus::ok) {
    result->error = failure_text(sampled.status);
    return;
  }
  result->tokens.push_back(sampled.token);
  if (request.sampling.logprobs >= 0) result->logprobs.push_back(logprobs_of(sampled));
  if (has_penalties(request.sampling)) counts_[static_cast<size_t>(index(slice.row))].add_output(sampled.token);
}

}  // namespace quern
