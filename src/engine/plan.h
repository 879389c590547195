// StepPlan: one step of the device, as plain data: the same object for every rank; it can be logged and replayed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"

namespace quern {

/// A sequence takes a row. Sent before its first slice there; whatever the row held is forgotten.
struct RowStart {
  RowId row{};
  std::shared_ptr<const Request> request;
  std::vector<int32_t> tokens;  // known to the host: the prompt, and what was generated before a preemption
};

/// Entry `index` of the row's page table in `group` becomes `page`: it holds tokens [index, index + 1) * page_tokens.
/// Entries that no grant named, and those behind a window, are never read.
struct PageGrant {
  RowId row{};
  int32_t group = 0;
  int32_t index = 0;
  PageId page{};
};

/// The first `tokens` tokens of a page are copied before the step computes (a shared prefix that ends inside a page).
struct PageCopy {
  int32_t group = 0;
  PageId from{};
  PageId to{};
  int32_t tokens = 0;
};

/// The recurrent state of a row becomes a snapshot, or a snapshot becomes the state, before the step computes. A row
/// that starts at token 0 needs none: its state begins empty. With drafts a row has a state for each of them, and goes
/// on from that of the last accepted one.
struct StateCopy {
  RowId row{};
  bool restores = false;      // the state is what changes
  std::vector<PageId> pages;  // the snapshot's, in order
};

/// Tokens of one row in one step. A prompt slice sends tokens [begin, begin + count) of the row's known tokens. A
/// decoding slice says only "go on": its first token and its position are on the device, `begin` is -1, count is 1 +
/// drafts.
struct Slice {
  RowId row{};
  int32_t begin = 0;
  int32_t count = 0;
  std::vector<int32_t> drafts;          // decoding only: guesses that follow the token on the device
  bool samples = false;                 // a next token is wanted: the last prompt slice, and every decoding slice
  bool masked = false;                  // its sample half waits for a mask
  bool finishes_prompt_output = false;  // pooled or scores: the last slice of a prompt
  int32_t score_begin = 0;              // known tokens [score_begin, score_end) of a prompt slice: the logprobs of the
  int32_t score_end = 0;                // tokens that follow them are wanted

  bool decoding() const { return begin < 0; }
  int32_t scores() const { return score_end - score_begin; }
};

/// Applied in the order of its members: starts, pages, copies, states; then the slices compute.
struct StepPlan {
  uint64_t step = 0;
  std::vector<RowStart> starts;
  std::vector<PageGrant> pages;
  std::vector<PageCopy> copies;
  std::vector<StateCopy> states;
  std::vector<Slice> slices;
};

/// Masks for rows of a step that was submitted; only its sample half waits for them. An absent mask fails its row.
struct RowMask {
  RowId row{};
  std::optional<TokenMask::Words> words;
};
struct StepMasks {
  uint64_t step = 0;
  std::vector<RowMask> rows;
};

/// What one slice gave. With drafts: the accepted ones and the token after them.
struct SliceResult {
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;  // Slice::scores() of them
  std::vector<float> vector;
  std::string error;        // this row failed (its logits were not finite, its mask never came); the step went on
  bool not_finite = false;  // because its logits were not
};

struct StepResult {
  uint64_t step = 0;
  std::vector<SliceResult> slices;  // in the plan's order
  int64_t device_us = 0;
  std::optional<std::string> device_error;  // the device died: everything fails
};

}  // namespace quern
