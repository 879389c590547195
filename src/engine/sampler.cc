#include "engine/sampler.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "engine/scorer.h"

namespace quern {
namespace {

bool has_penalties(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1.0F || sampling.frequency_penalty != 0.0F || sampling.presence_penalty != 0.0F;
}

/// Whether the tokens end with `part`.
bool ends_with(std::span<const int32_t> tokens, std::span<const int32_t> part) {
  return tokens.size() >= part.size() && std::ranges::equal(tokens.last(part.size()), part);
}

int64_t rounded(int64_t bytes) { return (bytes + 15) / 16 * 16; }

int64_t fixed_bytes(int32_t rows) { return rounded(rows * static_cast<int64_t>(sizeof(SampleRow) + sizeof(Sampled))); }

/// Room for what any one row can carry (counts and biases of every token, masks, bans), and for many ordinary ones.
int64_t payload_bytes(const Device& device, int32_t vocab) {
  return device.host_addressable() ? 0 : (int64_t{4} << 20) + 32 * int64_t{vocab};
}

int64_t payload_of(const SampleRow& row) {
  return rounded(static_cast<int64_t>(row.counts.size_bytes())) +
         rounded(static_cast<int64_t>(row.biases.size_bytes())) +
         rounded(static_cast<int64_t>(row.banned.size_bytes())) +
         rounded(static_cast<int64_t>(row.allowed.size_bytes()));
}

}  // namespace

Sampler::Sampler(Device& device, std::byte* host, int32_t rows, int32_t vocab, Tensor next)
    : device_(device),
      vocab_(vocab),
      next_(next),
      wanted_(reinterpret_cast<SampleRow*>(host)),
      sampled_(reinterpret_cast<Sampled*>(host + rows * int64_t{sizeof(SampleRow)})),
      payload_(host + fixed_bytes(rows)),
      payload_bytes_(payload_bytes(device, vocab)),
      wide_(device),
      counts_(static_cast<size_t>(rows)),
      banned_(static_cast<size_t>(rows)) {
  std::uninitialized_default_construct_n(wanted_, rows);
  std::uninitialized_default_construct_n(sampled_, rows);
}

int64_t Sampler::host_bytes(const Device& device, int32_t rows, int32_t vocab) {
  return fixed_bytes(rows) + payload_bytes(device, vocab);
}

void Sampler::start(RowId row, const Request& request, std::span<const int32_t> tokens) {
  TokenCounts& counts = counts_[static_cast<size_t>(index(row))];
  counts.clear();
  if (!has_penalties(request.sampling)) return;
  const auto window = static_cast<size_t>(request.sampling.repeat_last_n);
  const size_t begin = request.sampling.repeat_last_n >= 0 && window < tokens.size() ? tokens.size() - window : 0;
  const size_t prompt = std::clamp(request.prompt.size(), begin, tokens.size());
  counts.add_prompt(tokens.subspan(begin, prompt - begin));
  for (const int32_t token : tokens.subspan(prompt)) counts.add_output(token);
}

void Sampler::begin(Exec& exec, Tensor logits, const StepPlan& plan, std::span<const Row> rows, const StepStage& stage,
                    StepMaskWords masks) {
  logits_ = logits;
  masks_ = std::move(masks);
  results_.assign(plan.slices.size(), {});
  places_.clear();
  active_.clear();
  round_ = 0;
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    places_.push_back({stage.first_output()[i], stage.length_after(i) - (slice.decoding() ? slice.count - 1 : 0)});
    const auto mask = masks_.find(index(slice.row));
    if (slice.masked && (mask == masks_.end() || !mask->second)) {
      results_[i].error = "the constraint of the request refused its last token";
    } else if (slice.finishes_prompt_output) {
      results_[i].error = "this model computes no pooled output";
    } else if (slice.samples) {
      active_.push_back(i);
    }
  }
  start_round(exec, plan, rows);
}

std::vector<SliceResult> Sampler::finish(Exec& exec, const StepPlan& plan, std::span<const Row> rows) {
  // One round for each token a slice can add: a guess counts only if the round before chose it.
  device_.wait_for(mark_);
  for (end_round(plan, rows); !active_.empty(); end_round(plan, rows)) {
    start_round(exec, plan, rows);
    device_.wait_for(mark_);
  }
  return std::move(results_);
}

void Sampler::start_round(Exec& exec, const StepPlan& plan, std::span<const Row> rows) {
  payload_used_ = 0;
  size_t begin = 0;
  for (size_t k = 0; k < active_.size(); ++k) {
    const size_t i = active_[k];
    const Slice& slice = plan.slices[i];
    wanted_[k] =
        sample_row(slice, rows[static_cast<size_t>(index(slice.row))], results_[i], places_[i].position + round_);
    if (device_.host_addressable()) continue;
    if (payload_used_ + payload_of(wanted_[k]) > payload_bytes_) {
      // What these rows carry is more than fits at once: the rows before go first.
      sample_run(exec, begin, k);
      device_.wait();
      begin = k;
      payload_used_ = 0;
    }
    share(&wanted_[k]);
  }
  sample_run(exec, begin, active_.size());
  wide_.clear();
  wide_taken_ = 0;
  for (const size_t i : active_) {
    const SamplingParams& sampling = rows[static_cast<size_t>(index(plan.slices[i].row))].request->sampling;
    if (wanted_of_answer(sampling).wide()) wide_.add(logits_.rows(places_[i].output + round_, 1));
  }
  mark_ = device_.mark();
}

/// Neighbouring outputs are one call; without drafts that is all of them.
void Sampler::sample_run(Exec& exec, size_t begin, size_t end) {
  const auto output = [&](size_t k) { return places_[active_[k]].output + round_; };
  for (size_t first = begin; first < end;) {
    size_t last = first + 1;
    while (last < end && output(last) == output(last - 1) + 1) ++last;
    const size_t count = last - first;
    const Tensor logits = logits_.rows(output(first), static_cast<int32_t>(count));
    quern::sample(exec, logits, {wanted_ + first, count}, {sampled_ + first, count}, next_);
    first = last;
  }
}

void Sampler::end_round(const StepPlan& plan, std::span<const Row> rows) {
  std::vector<size_t> going_on;
  for (size_t k = 0; k < active_.size(); ++k) {
    const Slice& slice = plan.slices[active_[k]];
    keep(slice, rows[static_cast<size_t>(index(slice.row))], k, &results_[active_[k]]);
    const bool guessed = static_cast<size_t>(round_) < slice.drafts.size() &&
                         slice.drafts[static_cast<size_t>(round_)] == sampled_[k].token;
    if (guessed) going_on.push_back(active_[k]);
  }
  active_ = std::move(going_on);
  ++round_;
}

SampleRow Sampler::sample_row(const Slice& slice, const Row& row, const SliceResult& so_far, int32_t position) {
  const Request& request = *row.request;
  const SamplingParams& sampling = request.sampling;
  SampleRow wanted;
  wanted.temperature = sampling.temperature;
  wanted.min_p = sampling.min_p;
  wanted.top_k = sampling.top_k;
  wanted.top_p = sampling.top_p;
  wanted.typical_p = sampling.typical_p;
  wanted.repetition_penalty = sampling.repetition_penalty;
  wanted.frequency_penalty = sampling.frequency_penalty;
  wanted.presence_penalty = sampling.presence_penalty;
  wanted.seed = sampling.seed;
  wanted.position = position;
  wanted.next = index(slice.row);
  const LogprobsWanted told = wanted_of_answer(sampling);
  wanted.logprobs = told.wide() ? -1 : sampling.logprobs;
  wanted.processed = told.processed && told.wide();
  wanted.counts = counts_[static_cast<size_t>(index(slice.row))].entries();
  wanted.biases = sampling.logit_bias;
  wanted.banned = banned_tokens(slice, row, so_far.tokens);
  wanted.allowed = allowed_tokens(slice, sampling);
  return wanted;
}

/// Moves what the row points to into memory that the device reads.
void Sampler::share(SampleRow* row) {
  row->counts = shared(row->counts);
  row->biases = shared(row->biases);
  row->banned = shared(row->banned);
  row->allowed = shared(row->allowed);
}

template <typename T>
std::span<const T> Sampler::shared(std::span<const T> values) {
  if (values.empty()) return {};
  std::byte* const to = payload_ + payload_used_;
  std::memcpy(to, values.data(), values.size_bytes());
  payload_used_ += rounded(static_cast<int64_t>(values.size_bytes()));
  return {reinterpret_cast<const T*>(to), values.size()};
}

/// The end of the output, as long as the longest bad word without its last token.
std::vector<int32_t> Sampler::last_output(const Row& row, std::span<const int32_t> just_made) {
  size_t longest = 1;
  for (const std::vector<int32_t>& word : row.request->sampling.bad_words) longest = std::max(longest, word.size());
  const auto output = std::span<const int32_t>(row.tokens).subspan(row.request->prompt.size());
  const size_t before = std::min(output.size(), longest - 1);
  std::vector<int32_t> tokens(output.end() - static_cast<std::ptrdiff_t>(before), output.end());
  tokens.insert(tokens.end(), just_made.begin(), just_made.end());
  return tokens;
}

/// What ends the answer before min_tokens, what may not be its first token, and the last tokens of bad words whose
/// others have just been generated.
std::span<const int32_t> Sampler::banned_tokens(const Slice& slice, const Row& row,
                                                std::span<const int32_t> just_made) {
  const Request& request = *row.request;
  std::vector<int32_t>& banned = banned_[static_cast<size_t>(index(slice.row))];
  banned.clear();
  const size_t generated = row.tokens.size() - request.prompt.size() + just_made.size();
  if (generated < static_cast<size_t>(request.min_tokens)) {
    banned = request.end_tokens;
    banned.insert(banned.end(), request.stop_tokens.begin(), request.stop_tokens.end());
  }
  if (generated == 0) banned.insert(banned.end(), request.sampling.not_first.begin(), request.sampling.not_first.end());
  if (!request.sampling.bad_words.empty()) {
    const std::vector<int32_t> output = last_output(row, just_made);
    for (const std::vector<int32_t>& word : request.sampling.bad_words) {
      if (!word.empty() && ends_with(output, std::span(word).first(word.size() - 1))) banned.push_back(word.back());
    }
  }
  std::erase_if(banned, [&](int32_t token) { return token < 0 || token >= vocab_; });
  return banned;
}

/// By the request, by its constraint, or by both.
std::span<const uint32_t> Sampler::allowed_tokens(const Slice& slice, const SamplingParams& sampling) {
  if (!slice.masked)
    return sampling.allowed ? std::span<const uint32_t>(*sampling.allowed) : std::span<const uint32_t>();
  TokenMask::Words& words = *masks_.at(index(slice.row));
  for (size_t i = 0; sampling.allowed && i < std::min(words.size(), sampling.allowed->size()); ++i) {
    words[i] &= (*sampling.allowed)[i];
  }
  return words;
}

void Sampler::keep(const Slice& slice, const Row& row, size_t place, SliceResult* result) {
  const Sampled& sampled = sampled_[place];
  const SamplingParams& sampling = row.request->sampling;
  const LogprobsWanted wanted = wanted_of_answer(sampling);
  const std::span<const float> logits = wanted.wide() ? wide_[wide_taken_++] : std::span<const float>();
  if (sampled.status != SampleStatus::ok) {
    fail_row(*result, sampled.status);
    return;
  }
  result->tokens.push_back(sampled.token);
  if (sampling.logprobs >= 0)
    result->logprobs.push_back(logits.empty() ? logprobs_of(sampled) : wide_logprobs(logits, sampled.token, wanted));
  if (has_penalties(sampling)) count(row, result->tokens, counts_[static_cast<size_t>(index(slice.row))]);
}

/// Counts the last of the tokens that were just made; the one that leaves the window counts no more.
void Sampler::count(const Row& row, std::span<const int32_t> just_made, TokenCounts& counts) const {
  const int32_t window = row.request->sampling.repeat_last_n;
  if (window == 0) return;
  counts.add_output(just_made.back());
  const size_t known = row.tokens.size() + just_made.size();
  if (window < 0 || known <= static_cast<size_t>(window)) return;
  const size_t leaving = known - static_cast<size_t>(window) - 1;
  counts.remove(leaving < row.tokens.size() ? row.tokens[leaving] : just_made[leaving - row.tokens.size()],
                leaving >= row.request->prompt.size());
}

}  // namespace quern
