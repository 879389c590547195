// Scheduler: decides what each step computes, and what its result means. Pure logic: no clock, no threads. Thread:
// engine.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/request.h"
#include "engine/sequence.h"

namespace quern {

/// A request with what its sender could prepare.
struct Arrival {
  explicit Arrival(Request request);

  std::shared_ptr<const Request> request;
  std::vector<int32_t> tokens;  // the prompt, with room for the answer
  int64_t submitted_us = 0;
};

/// There are no phases: a sequence has known tokens of which some are sent, and every step has one budget of tokens.
/// Sequences are ordered by priority and age; the first can always take the pages of the last, so it always gets done.
class Scheduler {
 public:
  /// Tokens were chosen for a constrained request: its mask wants them, and its answer goes to give_mask.
  struct MaskQuery {
    RequestId request{};
    std::shared_ptr<TokenMask> mask;
    std::vector<int32_t> tokens;
  };

  explicit Scheduler(const EngineOptions& options);

  /// Prompt and answer together; what a request asks beyond it ends with FinishReason::length.
  int max_sequence_tokens() const { return max_tokens_; }
  /// Whether the request could run if it were alone. Any thread.
  bool fits(const Request& request) const;

  void add(Arrival arrival);
  void cancel(RequestId id);
  /// Ends what is too late; returns the next deadline, or nothing.
  std::optional<int64_t> expire(int64_t now_us);
  void give_mask(RequestId id, std::optional<TokenMask::Words> words);

  /// The next step; without slices when there is nothing to do before a result, a mask or a request comes.
  StepPlan plan(int64_t now_us);
  void commit(StepResult result, int64_t now_us);
  /// Ends every request. With `dead` no step in flight comes back and no new one is planned.
  void end_all(FinishReason reason, const std::string& error, bool dead);

  std::vector<MaskQuery> take_mask_queries() { return std::exchange(mask_queries_, {}); }
  std::vector<StepMasks> take_masks() { return std::exchange(masks_, {}); }

  int steps_in_flight() const { return static_cast<int>(flights_.size()); }
  bool idle() const { return sequences_.empty() && flights_.empty(); }
  bool dead() const { return stats_.dead; }
  void forget_prefixes() { kv_.tree.clear(); }
  EngineStats stats() const;
  /// Empty, or what is wrong. Recounts everything.
  std::string check() const;

 private:
  /// A slice of a step in flight.
  struct Sent {
    Sequence* sequence = nullptr;
    int end = 0;   // of the known tokens, the last slice included; 0: decoding
    int adds = 0;  // tokens at most
    int scores = 0;
  };
  struct Snapshot {
    Sequence* sequence = nullptr;
    std::vector<PageId> pages;
    int position = 0;
  };
  struct Flight {
    uint64_t step = 0;
    std::vector<Sent> slices;
    std::vector<Snapshot> snapshots;
    std::vector<Borrowed> borrowed;
  };
  enum class Start : uint8_t { started, waits, no_room };

  void plan_decoding(Sequence& s);
  void plan_prompt(Sequence& s, int64_t now_us);
  void add_slice(Sequence& s, Slice slice, int adds);
  void save_state(Sequence& s);
  int next_snapshot(const Sequence& s) const;

  void admit(int64_t now_us);
  Sequence* next_waiting();
  Start start(Sequence& s, int64_t now_us);
  bool take_prefix(Sequence& s, const PrefixTree::Match& match, std::vector<Borrowed>& borrowed);
  bool is_computed_by_another(Sequence& s, const PrefixTree::Match& match) const;
  bool still_waits(Sequence& s) const;
  int promised() const;
  bool hold(Sequence& s, int end);
  bool preempt_worse_than(const Sequence& s);

  void accept(Sequence& s, const Sent& sent, SliceResult result);
  void append(Sequence& s, SliceResult& result, TokenEvent& event) const;
  TokenEvent news(const Sequence& s) const;
  void finish(Sequence& s, TokenEvent event);
  void end(Sequence& s, TokenEvent event);
  void leave_row_list(Sequence& s);
  void release_row(Sequence& s);
  void forget(Sequence& s);
  void provide(uint64_t step, RowId row, std::optional<TokenMask::Words> words);

  const EngineOptions options_;
  Kv kv_;
  int max_tokens_ = 0;
  bool reserve_ = false;  // all pages of the longest sequence at admission
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> waiting_;
  std::vector<Sequence*> running_;  // best first
  int leaving_ = 0;                 // sequences that only wait for steps in flight
  std::vector<RowId> free_rows_;
  std::map<ClientId, Client> clients_;
  std::set<std::pair<int64_t, RequestId>> deadlines_;
  std::deque<Flight> flights_;
  std::vector<MaskQuery> mask_queries_;
  std::vector<StepMasks> masks_;
  int64_t next_arrival_ = 0;
  uint64_t next_step_ = 1;
  EngineStats stats_;

  // While a step is planned.
  StepPlan plan_;
  Flight flight_;
  int prompt_limit_ = 0;  // tokens of one prompt in this step
  int budget_ = 0;
  bool preempted_ = false;
};

}  // namespace quern
