// The second half of the scheduler: what results, masks, cancels and deadlines mean.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"

namespace quern {

void Scheduler::commit(StepResult result, int64_t now_us) {
  if (stats_.dead) return;
  if (result.device_error) return end_all(FinishReason::error, *result.device_error, true);
  CHECK(!flights_.empty() && flights_.front().step == result.step);
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  CHECK(flight.slices.size() == result.slices.size());
  ++stats_.steps;
  stats_.device_us += result.device_us;
  stats_.last_step_us = now_us;
  for (const Snapshot& snapshot : flight.snapshots) {
    const Sequence& s = *snapshot.sequence;
    snapshot.sequence->pages.give_snapshot(snapshot.pages, std::span(s.tokens).first(size_t(snapshot.position)));
  }
  for (const Borrowed& one : flight.borrowed) kv_.tree.release(one.page);
  for (size_t i = 0; i < flight.slices.size(); ++i) {
    Sequence& s = *flight.slices[i].sequence;
    --s.in_flight;
    s.unconfirmed -= flight.slices[i].adds;
    if (!s.answered) accept(s, flight.slices[i], std::move(result.slices[i]));
    if (s.state == Sequence::State::leaving && s.in_flight == 0) release_row(s);
  }
}

void Scheduler::accept(Sequence& s, const Sent& sent, SliceResult result) {
  TokenEvent event = news(s);
  if (!result.error.empty()) {
    stats_.corrupted += result.not_finite ? 1 : 0;
    event.finish = FinishReason::error;
    event.error = std::move(result.error);
    return finish(s, std::move(event));
  }
  CHECK(static_cast<int>(result.tokens.size()) <= sent.adds && result.tokens.empty() == (sent.adds == 0));
  CHECK(static_cast<int>(result.prompt_logprobs.size()) == sent.scores);
  if (sent.end > 0) s.computed = sent.end;
  s.scored += sent.scores;
  std::ranges::move(result.prompt_logprobs, std::back_inserter(s.prompt_logprobs));
  append(s, result, event);
  const bool only_scored = s.max_output == 0 && s.request->output == OutputKind::tokens && sent.end == s.admitted;
  if (only_scored) event.finish = FinishReason::length;
  if (event.finish || !event.tokens.empty()) event.prompt_logprobs = std::move(s.prompt_logprobs);
  if (!event.tokens.empty()) s.computed = s.known() - 1;
  if (sent.end > 0 && options_.prefix_caching) s.pages.publish(s.tokens, s.computed, false);
  s.pages.slide(s.computed);
  stats_.generation_tokens += static_cast<int64_t>(event.tokens.size());
  if (event.finish) return finish(s, std::move(event));
  if (event.tokens.empty()) return;
  if (s.request->mask) mask_queries_.push_back({s.request->id, s.request->mask, event.tokens});
  s.request->sink->deliver(std::move(event));
}

/// Tokens up to the one that ends the answer; what the device made after it is dropped.
void Scheduler::append(Sequence& s, SliceResult& result, TokenEvent& event) const {
  const Request& request = *s.request;
  const auto among = [](const std::vector<int32_t>& tokens, int32_t token) {
    return std::ranges::find(tokens, token) != tokens.end();
  };
  for (size_t i = 0; i < result.tokens.size() && !event.finish; ++i) {
    const int32_t token = result.tokens[i];
    s.tokens.push_back(token);
    event.tokens.push_back(token);
    if (i < result.logprobs.size()) event.logprobs.push_back(std::move(result.logprobs[i]));
    const bool may_stop = s.output() > request.min_tokens;
    if (may_stop && (among(request.end_tokens, token) || among(request.stop_tokens, token))) {
      event.finish = FinishReason::stop;
      event.stop_token = token;
    } else if (s.output() >= s.max_output) {
      event.finish = FinishReason::length;
    }
  }
  if (!result.vector.empty()) {
    event.vector = std::move(result.vector);
    event.finish = FinishReason::stop;
  }
  event.output_tokens = s.output();
}

TokenEvent Scheduler::news(const Sequence& s) const {
  TokenEvent event;
  event.request = s.request->id;
  event.prompt_tokens = static_cast<int32_t>(s.request->prompt.size());
  event.cached_tokens = s.cached_tokens;
  event.output_tokens = s.output();
  event.queued_us = s.started_us < 0 ? 0 : s.started_us - s.submitted_us;
  return event;
}

void Scheduler::finish(Sequence& s, TokenEvent event) {
  ++stats_.requests_finished[size_t(*event.finish)];
  s.answered = true;
  s.request->sink->deliver(std::move(event));
  for (const uint64_t step : s.mask_steps)
    provide(step, s.row, std::nullopt);  // the row's answer is of no use any more
  s.mask_steps.clear();
  if (s.request->deadline_us > 0) deadlines_.erase({s.request->deadline_us, s.request->id});
  if (s.state == Sequence::State::waiting) {
    std::erase(waiting_, &s);
    return forget(s);
  }
  if (s.state == Sequence::State::running) leave_row_list(s);
}

void Scheduler::forget(Sequence& s) {
  const ClientId client = s.request->client;
  if (--s.client->live == 0) clients_.erase(client);
  sequences_.erase(s.request->id);
}

void Scheduler::cancel(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->answered) return;
  TokenEvent event = news(*found->second);
  event.finish = FinishReason::cancelled;
  end(*found->second, std::move(event));
}

std::optional<int64_t> Scheduler::expire(int64_t now_us) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
    Sequence& s = *sequences_.at(deadlines_.begin()->second);
    TokenEvent event = news(s);
    event.finish = FinishReason::deadline;
    end(s, std::move(event));
  }
  return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first);
}

/// Outside a commit: a sequence without steps in flight leaves at once.
void Scheduler::end(Sequence& s, TokenEvent event) {
  const bool waits = s.state == Sequence::State::waiting;
  finish(s, std::move(event));
  if (!waits && s.in_flight == 0) release_row(s);
}

void Scheduler::end_all(FinishReason reason, const std::string& error, bool dead) {
  if (dead) {
    stats_.dead = true;
    for (const Flight& flight : flights_) {
      for (const Sent& sent : flight.slices) sent.sequence->in_flight = sent.sequence->unconfirmed = 0;
      for (const Snapshot& snapshot : flight.snapshots) {
        for (const PageId page : snapshot.pages) kv_.tree.release(page);
      }
      for (const Borrowed& one : flight.borrowed) kv_.tree.release(one.page);
    }
    flights_.clear();
  }
  std::vector<Sequence*> all;
  for (const auto& [id, sequence] : sequences_) all.push_back(sequence.get());
  for (Sequence* s : all) {
    if (s->answered) {
      if (dead) release_row(*s);
      continue;
    }
    TokenEvent event = news(*s);
    event.finish = reason;
    event.error = error;
    end(*s, std::move(event));
  }
}

void Scheduler::give_mask(RequestId id, std::optional<TokenMask::Words> words) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->answered) return;
  Sequence& s = *found->second;
  if (s.mask_steps.empty()) {
    s.mask.emplace(std::move(words));
    return;
  }
  provide(s.mask_steps.front(), s.row, std::move(words));
  s.mask_steps.erase(s.mask_steps.begin());
}

void Scheduler::provide(uint64_t step, RowId row, std::optional<TokenMask::Words> words) {
  const auto same = std::ranges::find(masks_, step, &StepMasks::step);
  StepMasks& masks = same == masks_.end() ? masks_.emplace_back(StepMasks{step, {}}) : *same;
  masks.rows.push_back({row, std::move(words)});
}

EngineStats Scheduler::stats() const {
  EngineStats stats = stats_;
  stats.waiting = static_cast<int32_t>(waiting_.size());
  // All others; a sequence that is preempted while steps are in flight stands in neither list.
  int64_t running = stats.requests_accepted - stats.waiting;
  for (const int64_t finished : stats.requests_finished) running -= finished;
  stats.running = static_cast<int32_t>(running);
  stats.pages_free = kv_.pool.free();
  stats.pages_cached = kv_.tree.cached();
  return stats;
}

std::string Scheduler::check() const {
  std::vector<int> users(size_t(kv_.pool.size()), 0);
  size_t in_flight = 0;
  for (const auto& [id, s] : sequences_) {
    s->pages.count(users);
    in_flight += size_t(s->in_flight);
  }
  for (const Flight& flight : flights_) {
    in_flight -= flight.slices.size();
    for (const Snapshot& snapshot : flight.snapshots) {
      for (const PageId page : snapshot.pages) ++users[size_t(index(page))];
    }
    for (const Borrowed& one : flight.borrowed) ++users[size_t(index(one.page))];
  }
  if (in_flight != 0) return "sequences and steps do not agree on what is in flight";
  if (waiting_.size() + running_.size() + size_t(leaving_) != sequences_.size()) return "a sequence is in no list";
  if (std::string wrong = kv_.tree.count(users); !wrong.empty()) return wrong;
  return kv_.pool.check(users);
}

}  // namespace quern
