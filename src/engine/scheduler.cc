#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/check.h"

namespace quern {

Arrival::Arrival(Request asked) {
  tokens.reserve(asked.prompt.size() + size_t(std::clamp(asked.max_tokens, 0, 4096)));
  tokens = asked.prompt;
  request = std::make_shared<const Request>(std::move(asked));
}

Scheduler::Scheduler(const EngineOptions& options)
    : options_(options), kv_(options.groups, options.pages, options.max_num_batched_tokens) {
  // Every row that decodes gets a token in every step.
  const int rows = std::min(options.max_num_seqs, options.max_num_batched_tokens);
  CHECK(rows > 0 && options.depth > 0);
  for (int i = rows; i-- > 0;) free_rows_.push_back(RowId{i});
  int low = 0;
  int high = options.max_model_len > 0 ? options.max_model_len : std::numeric_limits<int>::max() / 2;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    (kv_.peak(middle) <= options.pages ? low : high) = kv_.peak(middle) <= options.pages ? middle : middle - 1;
  }
  max_tokens_ = low;
  reserve_ = options.reserve_max_len &&
             std::ranges::all_of(kv_.groups, [](const GroupSpec& g) { return g.kind == GroupSpec::Kind::full; });
  stats_.pages_total = options.pages;
}

bool Scheduler::fits(const Request& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (options_.groups.empty() && prompt > options_.max_num_batched_tokens) return false;
  return prompt + (request.output == OutputKind::tokens && request.max_tokens != 0 ? 1 : 0) <= max_tokens_;
}

void Scheduler::add(Arrival arrival) {
  const Request& request = *arrival.request;
  CHECK(!request.prompt.empty() && fits(request));
  auto owned = std::make_unique<Sequence>(kv_, arrival.request, std::move(arrival.tokens));
  Sequence& s = *owned;
  CHECK(sequences_.try_emplace(request.id, std::move(owned)).second);
  s.arrival = next_arrival_++;
  s.submitted_us = arrival.submitted_us;
  if (request.output == OutputKind::tokens) {
    s.max_output = std::min(std::max(0, request.max_tokens), max_tokens_ - static_cast<int>(request.prompt.size()));
  }
  s.client = &clients_[request.client];
  if (s.client->live++ == 0) {  // it is owed nothing for the time it was not here
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const auto& [id, client] : clients_) {
      if (client.live > 0 && &client != s.client) least = std::min(least, client.served);
    }
    s.client->served = least == std::numeric_limits<int64_t>::max() ? 0 : least;
  }
  if (request.deadline_us > 0) deadlines_.insert({request.deadline_us, request.id});
  if (request.mask) mask_queries_.push_back({request.id, request.mask, {}});
  waiting_.push_back(&s);
  ++stats_.requests_accepted;
}

StepPlan Scheduler::plan(int64_t now_us) {
  if (stats_.dead) return {};
  plan_ = {};
  flight_ = {};
  plan_.step = flight_.step = next_step_;
  budget_ = options_.max_num_batched_tokens;
  preempted_ = false;
  std::vector<Sequence*> prompts;
  const std::vector<Sequence*> order = running_;  // planning one may preempt another
  for (Sequence* s : order) {
    if (s->state != Sequence::State::running) continue;
    if (s->decoding()) {
      plan_decoding(*s);
    } else {
      prompts.push_back(s);
    }
  }
  // Those who decode wait for a step's end: beside them a long prompt comes in smaller pieces.
  const bool cut = !plan_.slices.empty() && options_.chunked_prefill_size > 0;
  prompt_limit_ = cut ? options_.chunked_prefill_size : options_.max_num_batched_tokens;
  std::ranges::sort(prompts, {},
                    [](const Sequence* s) { return std::tuple(s->request->priority, s->client->served, s->arrival); });
  for (Sequence* s : prompts) {
    if (s->state == Sequence::State::running) plan_prompt(*s, now_us);
  }
  admit(now_us);
  if (!plan_.slices.empty()) {
    ++next_step_;
    flights_.push_back(std::move(flight_));
  }
  return std::move(plan_);
}

/// "Go on": the token and its position are on the device, here they have upper bounds.
void Scheduler::plan_decoding(Sequence& s) {
  const int limit = s.max_output - s.output() - s.unconfirmed;
  if (limit <= 0 || budget_ == 0) return;
  Slice slice;
  slice.row = s.row;
  slice.begin = -1;
  slice.count = 1;
  slice.samples = true;
  slice.masked = s.request->mask != nullptr;
  if (options_.draft && !slice.masked) {
    const int most = std::min({options_.max_drafts, limit - 1, budget_ - static_cast<int>(running_.size())});
    if (most > 0) slice.drafts = options_.draft(s.tokens, s.unconfirmed, most);
    slice.count += static_cast<int>(slice.drafts.size());
  }
  if (!hold(s, s.known() - 1 + s.unconfirmed + slice.count)) return;
  const int adds = slice.count;
  add_slice(s, std::move(slice), adds);
}

void Scheduler::plan_prompt(Sequence& s, int64_t now_us) {
  int count = std::min({s.admitted - s.sent, budget_, prompt_limit_});
  if (options_.groups.empty() && count < s.admitted - s.sent) return;  // an encoder sees all at once
  const int snapshot = next_snapshot(s);
  if (snapshot > s.sent) count = std::min(count, snapshot - s.sent);
  if (count == 0 || !hold(s, s.sent + count)) return;
  Slice slice;
  slice.row = s.row;
  slice.begin = s.sent;
  slice.count = count;
  if (s.sent + count == s.admitted) {
    slice.samples = s.max_output > 0;
    slice.finishes_prompt_output = s.request->output != OutputKind::tokens;
    slice.masked = slice.samples && s.request->mask != nullptr;
  }
  slice.score_begin = std::max(s.sent, s.score_begin);
  slice.score_end = std::min(s.sent + count, static_cast<int>(s.request->prompt.size()) - 1);
  if (slice.score_end <= slice.score_begin) slice.score_begin = slice.score_end = 0;
  if (s.started_us < 0) s.started_us = now_us;
  const int adds = slice.samples ? 1 : 0;
  add_slice(s, std::move(slice), adds);
  s.sent += count;
  s.snapshot_due = s.sent == snapshot;
  flight_.slices.back().end = s.sent;
}

void Scheduler::add_slice(Sequence& s, Slice slice, int adds) {
  if (s.snapshot_due) save_state(s);
  if (slice.masked) {
    if (s.mask) {
      provide(plan_.step, s.row, *std::exchange(s.mask, std::nullopt));
    } else {
      s.mask_steps.push_back(plan_.step);
    }
  }
  ++s.in_flight;
  s.unconfirmed += adds;
  budget_ -= slice.count;
  s.client->served += slice.count;
  flight_.slices.push_back({&s, 0, adds, slice.scores()});
  plan_.slices.push_back(std::move(slice));
}

/// Where the recurrent state is wanted by later requests: every page_tokens, where texts are known to part, and at the
/// last whole node that a request with the same tokens could take. 0: nowhere in what is left.
int Scheduler::next_snapshot(const Sequence& s) const {
  if (kv_.recurrent() == nullptr || !options_.prefix_caching) return 0;
  const int interval = kv_.recurrent()->page_tokens;
  const int last = (s.admitted - 1) / kv_.tree.node_tokens() * kv_.tree.node_tokens();
  const int regular = (s.sent / interval + 1) * interval;
  const auto branch = s.branches.upper_bound(s.sent);
  const int next = std::min({last, regular, branch == s.branches.end() ? last : *branch});
  return next > s.sent ? next : 0;
}

/// The state after the last slice is copied before this step changes it; only when memory is there.
void Scheduler::save_state(Sequence& s) {
  s.snapshot_due = false;
  const int pages = kv_.recurrent()->snapshot_pages;
  if (!kv_.tree.make_free(pages)) return;
  StateCopy copy{s.row, false, {}};
  for (int i = 0; i < pages; ++i) copy.pages.push_back(kv_.pool.take());
  flight_.snapshots.push_back({&s, copy.pages, s.sent});
  plan_.states.push_back(std::move(copy));
}

void Scheduler::admit(int64_t now_us) {
  while (budget_ > 0 && !preempted_) {
    Sequence* s = next_waiting();
    if (s == nullptr) return;
    const Start how = free_rows_.empty() ? Start::no_room : start(*s, now_us);
    if (how != Start::no_room) continue;
    // A more urgent request does not wait for a less urgent one.
    if (running_.empty() || running_.back()->request->priority <= s->request->priority) return;
    if (!preempt_worse_than(*s)) return;
    preempted_ = false;
  }
}

/// The most urgent; of those the client that got least; of its requests the oldest.
Sequence* Scheduler::next_waiting() {
  Sequence* best = nullptr;
  const auto rank = [](const Sequence& s) { return std::tuple(s.request->priority, s.client->served, s.arrival); };
  for (Sequence* s : waiting_) {
    if (!still_waits(*s) && (best == nullptr || rank(*s) < rank(*best))) best = s;
  }
  return best;
}

Scheduler::Start Scheduler::start(Sequence& s, int64_t now_us) {
  const bool retry = running_.empty() || next_step_ % 16 == 0;
  if (!retry && kv_.available() < s.wants_available) return Start::no_room;
  if (options_.groups.empty() && s.known() > budget_) return Start::no_room;
  PrefixTree::Match match;
  if (options_.prefix_caching) {
    match = kv_.tree.match(s.space, std::span(s.tokens).first(static_cast<size_t>(s.reusable())));
    if (is_computed_by_another(s, match)) return Start::waits;
    if (match.known_tokens > match.tokens) s.branches.insert(match.known_tokens);
  }
  std::vector<Borrowed> borrowed;
  if (!take_prefix(s, match, borrowed)) {
    if (match.tokens == 0 || !running_.empty() || leaving_ > 0) return Start::no_room;
    match = {};  // alone it can do without pages to copy from
    if (!take_prefix(s, match, borrowed)) return Start::no_room;
  }
  std::erase(waiting_, &s);
  s.state = Sequence::State::running;
  running_.insert(std::ranges::upper_bound(running_, &s, [](auto* a, auto* b) { return a->before(*b); }), &s);
  s.row = free_rows_.back();
  free_rows_.pop_back();
  s.admitted = s.known();
  s.sent = s.computed = match.tokens;
  s.score_begin = s.next_scored() - 1;
  if (s.started_us < 0) {
    s.cached_tokens = match.tokens;
    stats_.prefix_queries_tokens += s.known();
    stats_.prefix_hits_tokens += match.tokens;
  }
  stats_.prompt_tokens += s.admitted - s.sent;
  plan_.starts.push_back({s.row, s.request, s.tokens});
  s.pages.announce(s.row, plan_);
  const size_t slices = plan_.slices.size();
  plan_prompt(s, now_us);
  CHECK(plan_.slices.size() == slices + 1);  // the pages are there
  s.pages.copy(borrowed, s.row, plan_);
  flight_.borrowed.insert(flight_.borrowed.end(), borrowed.begin(), borrowed.end());
  return Start::started;
}

/// False, and nothing is taken, when pages are missing for the known tokens and what others were promised.
bool Scheduler::take_prefix(Sequence& s, const PrefixTree::Match& match, std::vector<Borrowed>& borrowed) {
  const int before = kv_.available();
  s.pages.adopt(match, borrowed);
  const int end = reserve_ ? max_tokens_ : std::min(s.known() + 1, max_tokens_);
  const int needed = s.pages.still_needs(end) + promised();
  if (needed <= kv_.available()) return true;
  s.wants_available = needed + before - kv_.available();
  s.pages.release();
  for (const Borrowed& one : borrowed) kv_.tree.release(one.page);
  borrowed.clear();
  return false;
}

/// A prefix that a running sequence is about to finish is waited for rather than computed twice.
bool Scheduler::is_computed_by_another(Sequence& s, const PrefixTree::Match& match) const {
  for (Sequence* other : running_) {
    if (other->space != s.space || other->computed >= other->admitted) continue;
    const auto theirs = std::span(other->tokens).first(size_t(other->admitted));
    const auto shared =
        std::ranges::mismatch(std::span(s.tokens).first(static_cast<size_t>(s.reusable())), theirs).in2 -
        theirs.begin();
    const int whole = static_cast<int>(shared) / kv_.tree.node_tokens() * kv_.tree.node_tokens();
    if (whole <= match.tokens || other->computed >= whole) continue;
    if (kv_.recurrent() != nullptr) {
      // Its state is as far as its last slice. When that is too far already, this sequence makes the snapshot itself.
      const bool can_save = other->sent < whole || (other->sent == whole && other->snapshot_due);
      (can_save ? *other : s).branches.insert(whole);
      if (!can_save) continue;
    }
    s.waits_for = other->request->id;
    s.waits_until = kv_.recurrent() == nullptr ? whole : whole + 1;  // a state is saved with the step after it
    return true;
  }
  return false;
}

bool Scheduler::still_waits(Sequence& s) const {
  if (!s.waits_for) return false;
  const auto found = sequences_.find(*s.waits_for);
  if (found != sequences_.end() && found->second->state == Sequence::State::running &&
      found->second->computed < std::min(s.waits_until, found->second->admitted)) {
    return true;
  }
  s.waits_for.reset();
  return false;
}

/// Pages that running sequences may still take for what they had when they came.
int Scheduler::promised() const {
  int sum = 0;
  for (const Sequence* s : running_) {
    if (s->computed < s->admitted) sum += s->pages.still_needs(std::min(s->admitted + 1, max_tokens_));
  }
  return sum;
}

bool Scheduler::hold(Sequence& s, int end) {
  if (reserve_) end = max_tokens_;
  const int missing = s.pages.missing(end);
  while (!kv_.tree.make_free(missing)) {
    if (!preempt_worse_than(s)) return false;
  }
  s.pages.grant(end, s.row, plan_);
  return true;
}

/// True when pages came back at once. While another sequence leaves, its pages are waited for.
bool Scheduler::preempt_worse_than(const Sequence& s) {
  if (leaving_ > 0 || running_.empty() || !s.before(*running_.back())) return false;
  Sequence& victim = *running_.back();
  ++stats_.preemptions;
  preempted_ = true;
  leave_row_list(victim);
  if (victim.in_flight > 0) return false;
  release_row(victim);
  return true;
}

void Scheduler::leave_row_list(Sequence& s) {
  std::erase(running_, &s);
  s.state = Sequence::State::leaving;
  ++leaving_;
}

/// No step in flight knows the row any more. What it computed stays as cache; unless it is answered it waits again.
void Scheduler::release_row(Sequence& s) {
  CHECK(s.state == Sequence::State::leaving && s.in_flight == 0 && s.unconfirmed == 0 && s.mask_steps.empty());
  if (options_.prefix_caching) s.pages.publish(s.tokens, s.computed, true);
  s.pages.release();
  free_rows_.push_back(s.row);
  --leaving_;
  s.snapshot_due = false;
  if (s.answered) {
    forget(s);
    return;
  }
  s.state = Sequence::State::waiting;
  s.wants_available = 0;
  waiting_.push_back(&s);
}

}  // namespace quern
