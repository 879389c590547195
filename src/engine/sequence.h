// Sequence: a request on its way, and the pages it holds. Thread: engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cache/page_pool.h"
#include "cache/prefix_tree.h"
#include "engine/plan.h"
#include "engine/request.h"

namespace quern {

/// What all sequences draw from.
struct Kv {
  Kv(std::vector<GroupSpec> specs, int pages, int step_tokens);

  /// Pages of a group that a sequence of `tokens` tokens holds at most when it is alone.
  int peak(size_t group, int tokens) const;
  int peak(int tokens) const;
  /// The recurrent group; null when there is none. There is never more than one.
  const GroupSpec* recurrent() const { return recurrent_group < 0 ? nullptr : &groups[size_t(recurrent_group)]; }
  /// Pages that are free or can be made so.
  int available() const { return pool.free() + tree.cached(); }

  const std::vector<GroupSpec> groups;
  PagePool pool;
  PrefixTree tree;
  const int max_step_tokens;  // of one sequence
  int recurrent_group = -1;
};

/// A page of the tree that is used until the step that copies it is back.
struct Borrowed {
  PageId page{};
  size_t group = 0;
  int entry = -1;  // of the table that gets the copy; -1: it is only kept
  int tokens = 0;
};

/// The page tables of one sequence, by group, and its place in the prefix tree.
class SequencePages {
 public:
  explicit SequencePages(Kv& kv, const PrefixTree::Namespace& space)
      : kv_(kv), space_(space), tables_(kv.groups.size()), first_(kv.groups.size(), 0) {}

  /// Shares the whole nodes of `match`; the tables were empty. What the match has beyond them is added to `borrowed`.
  void adopt(const PrefixTree::Match& match, std::vector<Borrowed>& borrowed);
  /// Grants of what was adopted.
  void announce(RowId row, StepPlan& plan) const;
  /// Copies what was borrowed into pages that were granted meanwhile, and to the row's state.
  void copy(const std::vector<Borrowed>& borrowed, RowId row, StepPlan& plan) const;

  /// Pages it lacks to hold `end` tokens, and taking them: as many must be free.
  int missing(int end) const;
  void grant(int end, RowId row, StepPlan& plan);
  /// Pages it may still take until it holds `end` tokens.
  int still_needs(int end) const;

  /// `computed` leading tokens are in the pages. Full nodes of them become known to the tree. While the sequence goes
  /// on (`last` false) it stops at a node of which others use the pages: only nodes that it uses itself cannot go away.
  void publish(std::span<const int32_t> tokens, int computed, bool last);
  /// Gives back what no query at or after `computed` can see.
  void slide(int computed);
  /// Gives back everything.
  void release();

  /// The tree takes `pages`, the recurrent state after the tokens `prefix`, if it knows these.
  void give_snapshot(std::span<const PageId> pages, std::span<const int32_t> prefix);

  /// Adds its uses to `users`, by page.
  void count(std::vector<int>& users) const;

 private:
  void borrow(const PrefixTree::Match& match, std::vector<Borrowed>& borrowed);
  int wanted(size_t group, int end) const;
  void move_to(PrefixTree::Node node);

  Kv& kv_;
  PrefixTree::Namespace space_;
  std::vector<std::vector<PageId>> tables_;
  std::vector<int> first_;                    // entries before it are given back, or were never taken
  PrefixTree::Node node_ = PrefixTree::none;  // the last one that holds this sequence's own pages; pinned
  int nodes_ = 0;
};

/// Requests of one client share one part of the machine.
struct Client {
  int64_t served = 0;  // tokens computed for it, and for those who came before it
  int live = 0;        // its requests
};

struct Sequence {
  enum class State : uint8_t { waiting, running, leaving };

  Sequence(Kv& kv, std::shared_ptr<const Request> asked, std::vector<int32_t> known)
      : request(std::move(asked)),
        tokens(std::move(known)),
        space{request->adapter, request->cache_salt},
        pages(kv, space) {}

  int known() const { return static_cast<int>(tokens.size()); }
  int output() const { return known() - static_cast<int>(request->prompt.size()); }
  bool decoding() const { return sent == admitted; }
  /// The next token of the prompt whose logprobs are wanted; the prompt's end when there is none.
  int next_scored() const {
    const int end = static_cast<int>(request->prompt.size());
    if (request->sampling.prompt_logprobs < 0) return end;
    return std::clamp(request->score_from, 1, end) + scored < end ? std::clamp(request->score_from, 1, end) + scored
                                                                  : end;
  }
  /// Leading tokens that may come from the cache: the last one is computed, and all whose logits are wanted.
  int reusable() const {
    const int next = next_scored();
    return (next < static_cast<int>(request->prompt.size()) ? next : known()) - 1;
  }
  bool before(const Sequence& other) const {
    return request->priority != other.request->priority ? request->priority < other.request->priority
                                                        : arrival < other.arrival;
  }

  std::shared_ptr<const Request> request;
  std::vector<int32_t> tokens;  // the prompt and what was generated
  PrefixTree::Namespace space;
  SequencePages pages;
  State state = State::waiting;
  Client* client = nullptr;
  int64_t arrival = 0;  // a running number
  int64_t submitted_us = 0;
  int64_t started_us = -1;
  int cached_tokens = 0;
  int max_output = 0;
  bool answered = false;                       // its last event is out
  int scored = 0;                              // tokens of the prompt whose logprobs are known
  std::vector<TokenLogprobs> prompt_logprobs;  // of those, until they are told

  // On its row. A waiting sequence has none.
  RowId row{};
  int admitted = 0;           // tokens it had when it got its row: these are sent, later ones are made on the device
  int sent = 0;               // of those, how many a step has taken
  int score_begin = 0;        // the first of them whose logits are wanted
  int in_flight = 0;          // steps not back yet: nothing is released before this is 0
  int unconfirmed = 0;        // tokens those steps can add at most: pages are taken for the worst case
  int computed = 0;           // leading tokens that are in the pages for certain
  bool snapshot_due = false;  // the last slice ended where a snapshot of the recurrent state is wanted
  std::set<int> branches;     // lengths at which another sequence went its own way: a snapshot there will be used

  // While it waits.
  std::optional<RequestId> waits_for;  // computes a prefix of this one's tokens, of waits_until tokens
  int waits_until = 0;
  int wants_available = 0;  // pages that it found missing

  // Masks. One is asked for at a time: the next one needs the token that this one helps to choose.
  std::vector<uint64_t> mask_steps;                     // steps that wait for one, oldest first
  std::optional<std::optional<TokenMask::Words>> mask;  // came before its step was planned
};

}  // namespace quern
