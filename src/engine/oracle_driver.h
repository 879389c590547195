// OracleDriver: one seeded random schedule of the scheduler over the oracle, in one thread and with a virtual clock.
// Everything that can happen happens in random order: requests, cancels, plans, results, masks that come late or never,
// deadlines, the death of the device. Every answer is compared with a text computed without an engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/oracle.h"
#include "engine/scheduler.h"

namespace quern {

/// A constraint of the oracle: which tokens may follow depends on the sum of those before. Nothing may follow
/// `breaks_at` tokens.
struct OracleConstraint {
  int vocab = 32;
  int breaks_at = -1;

  std::optional<TokenMask::Words> mask(const std::vector<int32_t>& output) const {
    if (static_cast<int>(output.size()) == breaks_at) return std::nullopt;
    int64_t sum = 0;
    for (const int32_t token : output) sum += token;
    TokenMask::Words words(size_t(vocab + 31) / 32, 0);
    for (int i = 0; i < vocab; ++i) {
      if (i % 3 == sum % 3) words[size_t(i) / 32] |= 1U << (i % 32);
    }
    return words;
  }
};

/// What a request must be answered.
struct OracleAnswer {
  std::vector<int32_t> tokens;
  std::vector<float> prompt_logprobs;
  std::vector<float> vector;
  FinishReason finish = FinishReason::length;
};

inline OracleAnswer oracle_answer(const OracleModel& model, const Request& request, int max_sequence_tokens,
                                  const OracleConstraint* constraint) {
  OracleAnswer answer;
  uint64_t prefix = OracleModel::start(request);
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const bool scored = request.sampling.prompt_logprobs >= 0 && static_cast<int>(i) >= std::max(1, request.score_from);
    if (scored) answer.prompt_logprobs.push_back(OracleModel::score(prefix, request.prompt[i]));
    prefix = OracleModel::extend(prefix, request.prompt[i]);
  }
  if (request.output != OutputKind::tokens) {
    answer.vector = OracleModel::vector(prefix);
    answer.finish = FinishReason::stop;
    return answer;
  }
  const int most = std::min(request.max_tokens, max_sequence_tokens - static_cast<int>(request.prompt.size()));
  const auto among = [](const std::vector<int32_t>& tokens, int32_t token) {
    return std::ranges::find(tokens, token) != tokens.end();
  };
  for (int made = 1; made <= most; ++made) {
    std::optional<TokenMask::Words> mask;
    if (constraint != nullptr) mask = constraint->mask(answer.tokens);
    answer.finish = FinishReason::error;
    if (made == OracleModel::fails_at(request) || (constraint != nullptr && !mask)) return answer;
    const int32_t token = model.next(prefix, request, mask ? &*mask : nullptr);
    prefix = OracleModel::extend(prefix, token);
    answer.tokens.push_back(token);
    answer.finish = FinishReason::stop;
    if (made > request.min_tokens && (among(request.end_tokens, token) || among(request.stop_tokens, token)))
      return answer;
  }
  answer.finish = FinishReason::length;
  return answer;
}

/// Collects one request's events and judges them.
class OracleSink final : public EventSink {
 public:
  void deliver(TokenEvent event) override {
    if (finish) wrong = "an event after the last one";
    tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
    for (const TokenLogprobs& logprobs : event.logprobs)
      logprob_tokens.push_back(static_cast<int32_t>(logprobs.chosen));
    if (!event.prompt_logprobs.empty() && tokens.size() > event.tokens.size()) wrong = "the prompt's logprobs are late";
    for (const TokenLogprobs& logprobs : event.prompt_logprobs) prompt_logprobs.push_back(logprobs.chosen);
    if (!event.vector.empty()) vector = event.vector;
    if (event.output_tokens != static_cast<int32_t>(tokens.size())) wrong = "output tokens are counted wrong";
    cached_tokens = event.cached_tokens;
    queued_us = event.queued_us;
    finish = event.finish;
  }

  /// `may_be_cut`: by a cancel, a deadline or the end of the device. Empty, or what is wrong.
  std::string judge(const Request& request, const OracleAnswer& answer, bool may_be_cut) const {
    if (!wrong.empty()) return wrong;
    if (!finish) return "no answer";
    if (request.sampling.logprobs >= 0 && logprob_tokens != tokens) return "logprobs do not belong to the tokens";
    const bool prefix =
        tokens.size() <= answer.tokens.size() && std::equal(tokens.begin(), tokens.end(), answer.tokens.begin());
    if (!prefix) return "a wrong text";
    const bool scored = may_be_cut || *finish == FinishReason::error || prompt_logprobs == answer.prompt_logprobs;
    if (!scored) return "wrong logprobs of the prompt";
    if (!tokens.empty() && prompt_logprobs != answer.prompt_logprobs) return "wrong logprobs of a prompt that was cut";
    if (*finish == answer.finish && tokens == answer.tokens && vector == answer.vector) return "";
    if (may_be_cut) return "";
    return "a wrong end: " + std::to_string(static_cast<int>(*finish)) + " after " + std::to_string(tokens.size()) +
           " tokens, expected " + std::to_string(static_cast<int>(answer.finish)) + " after " +
           std::to_string(answer.tokens.size());
  }

  std::vector<int32_t> tokens;
  std::vector<int32_t> logprob_tokens;
  std::vector<float> prompt_logprobs;
  std::vector<float> vector;
  std::optional<FinishReason> finish;
  int32_t cached_tokens = 0;
  int64_t queued_us = 0;
  std::string wrong;
};

/// The mask object of a request: only tells that it is constrained; the driver computes the masks.
class OracleMask final : public TokenMask {
 public:
  void advance(std::vector<int32_t>, std::function<void(std::optional<Words>)>) override {}
  void rollback(int) override {}
};

struct OracleCase {
  EngineOptions options;
  OracleModel model;
  int requests = 0;
  int max_prompt = 0;
  int max_new = 0;
  int prefixes = 1;    // shared beginnings
  double cancels = 0;  // of requests
  double deadlines = 0;
  double masks = 0;
  double failures = 0;
  double others = 0;  // pooled and scores
  uint64_t device_dies_at = 0;
  int ranks = 1;  // devices that run every plan, each for itself and all alike
  int check_every = 1;

  static OracleCase random(std::mt19937_64& random, int requests);
};

inline OracleCase OracleCase::random(std::mt19937_64& random, int requests) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const auto often = [&](double most) { return pick(0, 2) == 0 ? 0.0 : most * pick(1, 10) / 10; };
  OracleCase c;
  c.requests = requests;
  EngineOptions& options = c.options;
  const int page = pick(0, 1) == 0 ? 4 : pick(1, 8);
  const int nodes = pick(0, 3) == 0 ? pick(2, 4) : 1;  // pages of another group in a node
  options.groups = {{GroupSpec::Kind::full, 0, page}};
  switch (pick(0, 4)) {
    case 0: options.groups.push_back({GroupSpec::Kind::window, pick(1, 20), page * nodes}); break;
    case 1: options.groups.push_back({GroupSpec::Kind::recurrent, 0, page * pick(1, 4), pick(1, 3)}); break;
    case 2: options.groups = {{GroupSpec::Kind::window, pick(1, 20), page}}; break;
    case 3:
      options.groups.push_back({GroupSpec::Kind::window, pick(1, 20), page * nodes});
      options.groups.push_back({GroupSpec::Kind::recurrent, 0, page * nodes * pick(1, 4), pick(1, 3)});
      break;
    default: break;
  }
  options.depth = pick(1, 5);
  options.max_num_seqs = pick(1, 12);
  options.max_num_batched_tokens = pick(0, 1) == 0 ? pick(1, 12) : pick(12, 100);
  options.chunked_prefill_size = pick(0, 1) == 0 ? 0 : pick(1, 20);
  options.max_model_len = pick(8, 90);
  options.prefix_caching = pick(0, 9) != 0;
  options.max_drafts = pick(0, 2) == 0 ? pick(1, 4) : 0;
  const int alone = options.max_model_len / page + 2;
  options.pages = pick(0, 2) == 0 ? pick(alone, alone * 2) : pick(alone * 2, alone * 20);
  options.reserve_max_len = pick(0, 19) == 0;
  c.model.vocab = pick(2, 40);
  c.max_prompt = pick(1, options.max_model_len);
  c.max_new = pick(1, 30);
  c.prefixes = pick(1, 6);
  c.cancels = often(0.3);
  c.deadlines = often(0.2);
  c.masks = often(0.5);
  c.failures = often(0.1);
  c.others = often(0.3);
  if (pick(0, 14) == 0) c.device_dies_at = static_cast<uint64_t>(pick(1, 60));
  if (pick(0, 9) == 0) c.ranks = pick(2, 3);
  return c;
}

class OracleDriver {
 public:
  OracleDriver(OracleCase c, uint64_t seed)
      : case_(with_drafter(std::move(c), *this)),
        random_(seed),
        scheduler_(case_.options),
        device_(case_.model, case_.options.groups, case_.options.pages, case_.options.max_num_seqs),
        other_ranks_(size_t(case_.ranks - 1), device_) {
    for (int i = 0; i < case_.prefixes; ++i) prefixes_.push_back(random_tokens(case_.max_prompt));
  }

  /// Runs until all is answered. Empty, or the first thing that was wrong.
  std::string run();

  const Scheduler& scheduler() const { return scheduler_; }
  const OracleDevice& device() const { return device_; }

 private:
  struct Live {
    Request request;  // a copy without mask and sink
    std::shared_ptr<OracleSink> sink;
    std::optional<OracleConstraint> constraint;
    std::vector<int32_t> masked_output;  // what its constraint has accepted
    bool may_be_cut = false;
  };

  static OracleCase with_drafter(OracleCase c, OracleDriver& driver) {
    if (c.options.max_drafts > 0) {
      c.options.draft = [&driver](auto known, int unconfirmed, int limit) {
        return driver.draft(known, unconfirmed, limit);
      };
    }
    return c;
  }
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool happens(double probability) { return std::uniform_real_distribution<double>()(random_) < probability; }
  std::vector<int32_t> random_tokens(int count) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(pick(0, case_.model.vocab - 1));
    return tokens;
  }

  std::vector<int32_t> draft(std::span<const int32_t> known, int unconfirmed, int limit);
  void submit();
  void cancel();
  bool plan();
  static bool gives_the_same(const StepResult& a, const StepResult& b);
  bool complete();
  bool answer_mask();
  void collect();
  bool act();
  void check();
  std::string check_ledger();
  void judge();

  const OracleCase case_;
  std::mt19937_64 random_;
  Scheduler scheduler_;
  OracleDevice device_;
  std::vector<OracleDevice> other_ranks_;
  std::vector<std::vector<int32_t>> prefixes_;
  std::map<RequestId, Live> live_;
  uint64_t submitted_ = 0;
  int64_t now_us_ = 1;
  std::deque<StepPlan> in_flight_;
  std::map<uint64_t, std::map<RowId, std::optional<TokenMask::Words>>> masks_;
  std::vector<Scheduler::MaskQuery> queries_;
  int calls_ = 0;
  EngineStats last_;  // at the last check
  std::string wrong_;
};

inline std::string OracleDriver::run() {
  while (wrong_.empty() && (submitted_ < static_cast<uint64_t>(case_.requests) || !scheduler_.idle())) {
    if (!act()) wrong_ = "nothing goes on, and not all is answered";
    if (wrong_.empty()) wrong_ = device_.wrong();
  }
  judge();
  const EngineStats stats = scheduler_.stats();
  if (wrong_.empty()) wrong_ = scheduler_.check();
  if (wrong_.empty() && stats.pages_free + stats.pages_cached != stats.pages_total) wrong_ = "pages are used by nobody";
  if (wrong_.empty() && !live_.empty()) wrong_ = "a request without an answer";
  return wrong_;
}

/// One thing that can happen now, at random. False when nothing can.
inline bool OracleDriver::act() {
  now_us_ += pick(0, 20);
  scheduler_.expire(now_us_);
  const bool more = submitted_ < static_cast<uint64_t>(case_.requests);
  bool done = false;
  switch (pick(0, 7)) {
    case 0:
    case 1:
      if (more && live_.size() < 40) {
        submit();
        done = true;
      }
      break;
    case 2:
    case 3: done = plan(); break;
    case 4:
    case 5: done = complete(); break;
    case 6: done = answer_mask(); break;
    default:
      if (happens(case_.cancels)) cancel();
      if (pick(0, 400) == 0) scheduler_.forget_prefixes();
      done = true;
  }
  if (!done) done = complete() || answer_mask() || plan();
  if (!done && more) {
    submit();
    done = true;
  }
  collect();
  check();
  if (pick(0, 30) == 0) judge();
  return done || scheduler_.idle();
}

inline void OracleDriver::submit() {
  Request request;
  request.id = RequestId{++submitted_};
  request.client = ClientId{static_cast<uint64_t>(pick(0, 2))};
  const std::vector<int32_t>& shared = prefixes_[size_t(pick(0, case_.prefixes - 1))];
  const int length = pick(1, case_.max_prompt);
  request.prompt.assign(shared.begin(), shared.begin() + std::min(length, pick(0, case_.max_prompt)));
  const auto rest = random_tokens(length - static_cast<int>(request.prompt.size()));
  request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
  request.max_tokens = pick(1, case_.max_new);
  request.min_tokens = pick(0, 3) == 0 ? pick(0, request.max_tokens) : 0;
  if (pick(0, 1) == 0) request.end_tokens = random_tokens(1);
  if (pick(0, 3) == 0) request.stop_tokens = random_tokens(1);
  request.priority = pick(0, 4) == 0 ? pick(-1, 1) : 0;
  request.cache_salt = case_.options.draft || pick(0, 9) != 0 ? 0 : 1;
  request.adapter = case_.options.draft || pick(0, 9) != 0 ? 0 : 1;
  request.sampling.seed = case_.options.draft ? 0 : static_cast<uint64_t>(pick(0, 3));
  if (pick(0, 3) == 0) request.sampling.logprobs = 0;
  if (pick(0, 3) == 0) {
    request.sampling.prompt_logprobs = 0;
    request.score_from = pick(0, length + 1);
    if (pick(0, 2) == 0) request.max_tokens = request.min_tokens = 0;
  }
  if (happens(case_.failures)) request.sampling.logit_bias = {{-1, static_cast<float>(pick(1, case_.max_new))}};
  Live live;
  if (happens(case_.others)) {
    request.output = pick(0, 1) == 0 ? OutputKind::pooled : OutputKind::scores;
    request.sampling.logit_bias.clear();
  } else if (happens(case_.masks)) {
    live.constraint = OracleConstraint{case_.model.vocab, pick(0, 5) == 0 ? pick(0, 10) : -1};
    request.mask = std::make_shared<OracleMask>();
  }
  if (happens(case_.deadlines)) request.deadline_us = now_us_ + pick(1, 4000);
  // With drafts a row may fail in a step that also made the token which would have ended the answer.
  const bool may_fail_early = case_.options.draft && OracleModel::fails_at(request) > 0;
  live.may_be_cut = request.deadline_us > 0 || may_fail_early;
  live.sink = std::make_shared<OracleSink>();
  request.sink = live.sink;
  live.request = request;
  if (!scheduler_.fits(request)) return;
  Arrival arrival(std::move(request));
  arrival.submitted_us = now_us_;
  live_.emplace(live.request.id, std::move(live));
  scheduler_.add(std::move(arrival));
  if (scheduler_.dead()) scheduler_.end_all(FinishReason::error, "dead", true);
}

inline void OracleDriver::cancel() {
  if (live_.empty()) return;
  auto victim = live_.begin();
  std::advance(victim, pick(0, static_cast<int>(live_.size()) - 1));
  victim->second.may_be_cut = true;
  scheduler_.cancel(victim->first);
}

inline bool OracleDriver::plan() {
  if (scheduler_.steps_in_flight() >= case_.options.depth) return false;
  StepPlan plan = scheduler_.plan(now_us_);
  if (plan.slices.empty()) return false;
  int tokens = 0;
  for (const Slice& slice : plan.slices) tokens += slice.count;
  if (tokens > case_.options.max_num_batched_tokens) wrong_ = "a step over its budget";
  device_.submitted(plan);
  for (OracleDevice& rank : other_ranks_) rank.submitted(plan);
  in_flight_.push_back(std::move(plan));
  return true;
}

inline bool OracleDriver::gives_the_same(const StepResult& a, const StepResult& b) {
  return a.step == b.step &&
         std::ranges::equal(a.slices, b.slices, [](const SliceResult& one, const SliceResult& other) {
           return one.tokens == other.tokens && one.vector == other.vector && one.error == other.error &&
                  one.prompt_logprobs.size() == other.prompt_logprobs.size();
         });
}

/// The oldest step comes back, once it has all its masks.
inline bool OracleDriver::complete() {
  if (in_flight_.empty()) return false;
  const StepPlan& plan = in_flight_.front();
  const auto& masks = masks_[plan.step];
  for (const Slice& slice : plan.slices) {
    if (slice.masked && !masks.contains(slice.row)) return false;
  }
  StepResult result = device_.run(plan, masks);
  for (OracleDevice& rank : other_ranks_) {
    const StepResult same = rank.run(plan, masks);
    if (!rank.wrong().empty()) wrong_ = rank.wrong();
    if (!gives_the_same(result, same)) wrong_ = "two ranks made different things of one plan";
  }
  if (case_.device_dies_at > 0 && result.step >= case_.device_dies_at) result.device_error = "the device died";
  masks_.erase(plan.step);
  in_flight_.pop_front();
  scheduler_.commit(std::move(result), now_us_);
  return true;
}

/// One of the constraints that were asked answers.
inline bool OracleDriver::answer_mask() {
  if (queries_.empty()) return false;
  const size_t which = size_t(pick(0, static_cast<int>(queries_.size()) - 1));
  const Scheduler::MaskQuery query = std::move(queries_[which]);
  queries_.erase(queries_.begin() + static_cast<std::ptrdiff_t>(which));
  const auto live = live_.find(query.request);
  if (live == live_.end()) return true;
  std::vector<int32_t>& output = live->second.masked_output;
  output.insert(output.end(), query.tokens.begin(), query.tokens.end());
  scheduler_.give_mask(query.request, live->second.constraint->mask(output));
  return true;
}

inline void OracleDriver::collect() {
  for (StepMasks& masks : scheduler_.take_masks()) {
    for (RowMask& mask : masks.rows) {
      if (!masks_[masks.step].emplace(mask.row, std::move(mask.words)).second) wrong_ = "a mask came twice";
    }
  }
  for (Scheduler::MaskQuery& query : scheduler_.take_mask_queries()) queries_.push_back(std::move(query));
}

inline void OracleDriver::check() {
  if (!wrong_.empty() || calls_++ % case_.check_every != 0) return;
  wrong_ = scheduler_.check();
  if (wrong_.empty()) wrong_ = check_ledger();
}

/// C23: what was accepted and is not answered runs or waits, and no counter falls.
inline std::string OracleDriver::check_ledger() {
  const EngineStats now = scheduler_.stats();
  bool fell = now.steps < last_.steps || now.prompt_tokens < last_.prompt_tokens ||
              now.generation_tokens < last_.generation_tokens || now.requests_accepted < last_.requests_accepted ||
              now.prefix_queries_tokens < last_.prefix_queries_tokens ||
              now.prefix_hits_tokens < last_.prefix_hits_tokens || now.preemptions < last_.preemptions;
  for (size_t reason = 0; reason < std::size(now.requests_finished); ++reason) {
    fell = fell || now.requests_finished[reason] < last_.requests_finished[reason];
  }
  last_ = now;
  if (fell) return "a counter fell";
  const auto open = std::ranges::count_if(live_, [](const auto& live) { return !live.second.sink->finish; });
  return open == now.running + now.waiting ? "" : "what runs and waits is not what has no answer";
}

/// Compares what is answered, and forgets it.
inline void OracleDriver::judge() {
  for (auto it = live_.begin(); it != live_.end();) {
    const Live& live = it->second;
    if (!live.sink->finish) {
      ++it;
      continue;
    }
    const OracleAnswer answer = oracle_answer(case_.model, live.request, scheduler_.max_sequence_tokens(),
                                              live.constraint ? &*live.constraint : nullptr);
    const bool may_be_cut = live.may_be_cut || scheduler_.dead();
    const std::string wrong = live.sink->judge(live.request, answer, may_be_cut);
    if (!wrong.empty() && wrong_.empty()) wrong_ = "request " + std::to_string(index(it->first)) + ": " + wrong;
    it = live_.erase(it);
  }
}

/// Guesses as if all tokens on their way were what the drafts said; some are wrong on purpose.
inline std::vector<int32_t> OracleDriver::draft(std::span<const int32_t> known, int unconfirmed, int limit) {
  const Request request;  // drafted requests have no seed, salt or adapter
  uint64_t prefix = OracleModel::start(request);
  for (const int32_t token : known) prefix = OracleModel::extend(prefix, token);
  std::vector<int32_t> guesses;
  for (int i = 0; i < unconfirmed + limit; ++i) {
    const int32_t token = case_.model.next(prefix, request, nullptr);
    prefix = OracleModel::extend(prefix, token);
    if (i >= unconfirmed) guesses.push_back(pick(0, 4) == 0 ? pick(0, case_.model.vocab - 1) : token);
  }
  guesses.resize(size_t(pick(0, limit)));
  return guesses;
}

}  // namespace quern
