// The oracle: an executor without a model, for tests and for measuring the host's time. The cell of a token holds the
// hash of the whole prefix up to it, and the next token is a function of that hash, so a wrong page, copy, mask,
// position or reuse gives a wrong text; and every read is compared with what the row's own tokens say, so it is also
// named at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/channel.h"
#include "base/check.h"
#include "cache/page_pool.h"
#include "engine/executor.h"
#include "engine/plan.h"
#include "engine/request.h"

namespace quern {

/// The oracle's idea of a language, which is also the reference for a text computed without any engine.
struct OracleModel {
  int vocab = 32;

  static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  /// Before the first token: nothing is shared between adapters and salts.
  static uint64_t start(const Request& request) {
    return mix(request.cache_salt * 3 + static_cast<uint64_t>(request.adapter) + 1);
  }
  static uint64_t extend(uint64_t prefix, int32_t token) { return mix(prefix ^ mix(static_cast<uint64_t>(token) + 7)); }

  int32_t next(uint64_t prefix, const Request& request, const TokenMask::Words* mask) const {
    auto token = static_cast<int32_t>(mix(prefix ^ request.sampling.seed) % static_cast<uint64_t>(vocab));
    for (int i = 0; mask != nullptr && i < vocab && !allowed(*mask, token); ++i) token = (token + 1) % vocab;
    return token;
  }
  static bool allowed(const TokenMask::Words& mask, int32_t token) {
    return ((mask[size_t(token) / 32] >> (token % 32)) & 1U) != 0;
  }
  static std::vector<float> vector(uint64_t prefix) {
    return {static_cast<float>(prefix % 1024), static_cast<float>(prefix / 1024 % 1024)};
  }
  /// Stands for the logprob of a token after `prefix`.
  static float score(uint64_t prefix, int32_t token) { return static_cast<float>(extend(prefix, token) % 4096); }
  /// A bias of the impossible token -1 says at which new token (1 is the first) the row fails.
  static int fails_at(const Request& request) {
    for (const auto& [token, bias] : request.sampling.logit_bias) {
      if (token == -1) return static_cast<int>(bias);
    }
    return 0;
  }
};

/// Runs plans one after another, in the caller's thread.
class OracleDevice {
 public:
  OracleDevice(OracleModel model, std::vector<GroupSpec> groups, int pages, int rows, bool verify = true)
      : model_(model), groups_(std::move(groups)), verify_(verify), rows_(size_t(rows)) {
    for (const GroupSpec& group : groups_) {
      if (group.kind != GroupSpec::Kind::recurrent) page_tokens_ = std::max(page_tokens_, group.page_tokens);
    }
    cells_.assign(size_t(pages) * size_t(page_tokens_), 0);
  }

  /// A plan leaves the engine: what it writes must be of no step that has not run yet.
  void submitted(const StepPlan& plan);
  /// `masks` by row.
  StepResult run(const StepPlan& plan, const std::map<RowId, std::optional<TokenMask::Words>>& masks);

  /// The first thing that was wrong; empty when nothing was.
  const std::string& wrong() const { return wrong_; }
  int64_t accepted_drafts() const { return accepted_drafts_; }

 private:
  struct Row {
    std::shared_ptr<const Request> request;
    std::vector<std::vector<PageId>> tables;
    std::vector<int32_t> tokens;     // known, and then those made here
    std::vector<uint64_t> prefixes;  // [i]: of the first i tokens
    int computed = 0;                // positions that are in the cells
    std::vector<uint64_t> states;    // of a recurrent group: [i] is the hash of the prefix after i accepted drafts
    size_t state = 0;                // the one it goes on from
  };

  uint64_t& cell(PageId page, int offset) {
    return cells_[size_t(index(page)) * size_t(page_tokens_) + size_t(offset)];
  }
  Row& row(RowId id) { return rows_[size_t(index(id))]; }
  void fault(const std::string& text) {
    if (wrong_.empty()) wrong_ = text;
  }
  void start(const RowStart& start);
  void grant(Row& row, const PageGrant& grant);
  void copy(const PageCopy& copy);
  void copy(const StateCopy& copy);
  void run_slice(const Slice& slice, const std::optional<TokenMask::Words>* mask, SliceResult& result);
  void score(const Row& row, const Slice& slice, int32_t position, SliceResult& result);
  void compute(Row& row, int position, uint64_t before, uint64_t after, int slot);
  void compute_state(Row& row, int position, uint64_t before, uint64_t after, int slot);
  void run_decoding(Row& row, const Slice& slice, const TokenMask::Words* mask, SliceResult& result);
  void spoil(Row& row, int position, int slot);
  void sample(Row& row, const TokenMask::Words* mask, SliceResult& result);

  const OracleModel model_;
  const std::vector<GroupSpec> groups_;
  const bool verify_;
  int page_tokens_ = 1;
  std::vector<uint64_t> cells_;  // page_tokens_ per page; of a snapshot the first one of each page is a part of it
  std::vector<Row> rows_;
  std::string wrong_;
  int64_t accepted_drafts_ = 0;

  // As of submission.
  struct Submitted {
    const Request* request = nullptr;
    std::vector<std::vector<PageId>> tables;
  };
  struct Touch {  // what a step that has not run may read or write
    PageId page{};
    RowId row{};  // -1: a copy reads it
    size_t group = 0;
    int end = 0;  // it holds tokens before this one
    const Request* request = nullptr;
  };
  bool is_seen(const Touch& touch);
  bool is_touched(PageId page, std::optional<RowId> by);
  void check_written(const Slice& slice, const std::vector<PageId>& table, int page_tokens);

  std::map<RowId, Submitted> submitted_;
  std::deque<std::vector<Touch>> not_run_;
};

/// The step before the oldest one has run, so this one's first token is known to be no earlier than `computed`.
inline bool OracleDevice::is_seen(const Touch& touch) {
  if (touch.row == RowId{-1} || groups_[touch.group].kind != GroupSpec::Kind::window) return true;
  const Row& row = this->row(touch.row);
  return row.request.get() != touch.request || touch.end > row.computed - groups_[touch.group].window + 1;
}

inline bool OracleDevice::is_touched(PageId page, std::optional<RowId> by) {
  for (const std::vector<Touch>& touches : not_run_) {
    for (const Touch& touch : touches) {
      if (touch.page == page && (!by || touch.row != *by) && is_seen(touch)) return true;
    }
  }
  return false;
}

inline void OracleDevice::submitted(const StepPlan& plan) {
  if (!verify_) return;
  for (const RowStart& start : plan.starts) {
    for (const std::vector<Touch>& touches : not_run_) {
      for (const Touch& touch : touches) {
        if (touch.row == start.row) fault("a row is given away while a step in flight uses it");
      }
    }
    submitted_[start.row] = {start.request.get(), std::vector<std::vector<PageId>>(groups_.size())};
  }
  for (const PageGrant& grant : plan.pages) {
    auto& table = submitted_[grant.row].tables[size_t(grant.group)];
    if (static_cast<int>(table.size()) <= grant.index) table.resize(size_t(grant.index) + 1, no_page);
    table[size_t(grant.index)] = grant.page;
  }
  std::vector<Touch> touches;
  for (const PageCopy& copy : plan.copies) {
    if (is_touched(copy.to, std::nullopt)) fault("a page is copied to while a step in flight uses it");
    touches.push_back({copy.from, RowId{-1}, 0, 0, nullptr});
  }
  for (const StateCopy& copy : plan.states) {
    for (const PageId page : copy.pages) {
      if (!copy.restores && is_touched(page, std::nullopt)) fault("a state is saved where a step in flight reads");
      touches.push_back({page, RowId{-1}, 0, 0, nullptr});
    }
  }
  for (const Slice& slice : plan.slices) {
    const Submitted& row = submitted_[slice.row];
    for (size_t g = 0; g < groups_.size(); ++g) {
      const int step = groups_[g].page_tokens;
      for (size_t i = 0; i < row.tables[g].size(); ++i) {
        const int end = (static_cast<int>(i) + 1) * step;
        const bool seen = groups_[g].kind != GroupSpec::Kind::window || end > slice.begin - groups_[g].window + 1;
        if (seen) touches.push_back({row.tables[g][i], slice.row, g, end, row.request});
      }
      if (!slice.decoding() && groups_[g].kind != GroupSpec::Kind::recurrent) check_written(slice, row.tables[g], step);
    }
  }
  not_run_.push_back(std::move(touches));
}

inline void OracleDevice::check_written(const Slice& slice, const std::vector<PageId>& table, int page_tokens) {
  for (int i = slice.begin / page_tokens; i * page_tokens < slice.begin + slice.count; ++i) {
    if (i >= static_cast<int>(table.size()) || table[size_t(i)] == no_page) {
      fault("a slice has no page");
    } else if (is_touched(table[size_t(i)], slice.row)) {
      fault("a page is written while a step in flight of another row uses it");
    }
  }
}

inline StepResult OracleDevice::run(const StepPlan& plan,
                                    const std::map<RowId, std::optional<TokenMask::Words>>& masks) {
  for (const RowStart& start : plan.starts) this->start(start);
  for (const PageGrant& grant : plan.pages) this->grant(row(grant.row), grant);
  for (const PageCopy& copy : plan.copies) this->copy(copy);
  for (const StateCopy& copy : plan.states) this->copy(copy);
  StepResult result;
  result.step = plan.step;
  for (const Slice& slice : plan.slices) {
    const auto mask = masks.find(slice.row);
    if (slice.masked && mask == masks.end()) fault("a step ran without its masks");
    run_slice(slice, slice.masked && mask != masks.end() ? &mask->second : nullptr, result.slices.emplace_back());
  }
  if (verify_) not_run_.pop_front();
  return result;
}

inline void OracleDevice::start(const RowStart& start) {
  Row& row = this->row(start.row);
  row = {};
  row.request = start.request;
  row.tables.resize(groups_.size());
  row.tokens = start.tokens;
  row.prefixes.push_back(OracleModel::start(*start.request));
  for (const int32_t token : start.tokens) row.prefixes.push_back(OracleModel::extend(row.prefixes.back(), token));
}

inline void OracleDevice::grant(Row& row, const PageGrant& grant) {
  auto& table = row.tables[size_t(grant.group)];
  if (static_cast<int>(table.size()) <= grant.index) table.resize(size_t(grant.index) + 1, no_page);
  table[size_t(grant.index)] = grant.page;
}

inline void OracleDevice::copy(const PageCopy& copy) {
  if (copy.tokens < 1) fault("a copy of a wrong length");
  for (int i = 0; i < copy.tokens; ++i) cell(copy.to, i) = cell(copy.from, i);
}

/// Every page of a snapshot holds the state in its own way, so that none can be missing or stand for another.
inline void OracleDevice::copy(const StateCopy& copy) {
  Row& row = this->row(copy.row);
  row.states.resize(std::max<size_t>(row.states.size(), 1));
  if (copy.restores) row.states[row.state = 0] = cell(copy.pages.at(0), 0) - 1;
  for (size_t i = 0; i < copy.pages.size(); ++i) {
    const uint64_t part = row.states.at(row.state) + i + 1;
    if (copy.restores && cell(copy.pages[i], 0) != part) fault("a snapshot is made of pages of several");
    if (!copy.restores) cell(copy.pages[i], 0) = part;
  }
}

inline void OracleDevice::run_slice(const Slice& slice, const std::optional<TokenMask::Words>* mask,
                                    SliceResult& result) {
  Row& row = this->row(slice.row);
  const TokenMask::Words* words = mask != nullptr && mask->has_value() ? &**mask : nullptr;
  if (slice.decoding()) {
    run_decoding(row, slice, words, result);
  } else {
    if (row.computed == 0) row.computed = slice.begin;  // what comes before was shared
    if (slice.begin != row.computed) fault("a slice does not begin where the last one ended");
    for (int i = 0; i < slice.count; ++i) {
      const size_t position = size_t(slice.begin + i);
      compute(row, slice.begin + i, row.prefixes[position], row.prefixes[position + 1], 0);
    }
    row.computed += slice.count;
    for (int32_t i = slice.score_begin; i < slice.score_end; ++i) score(row, slice, i, result);
    if (slice.samples) sample(row, words, result);
    if (slice.finishes_prompt_output) result.vector = OracleModel::vector(row.prefixes[size_t(row.computed)]);
  }
  const int fails_at = OracleModel::fails_at(*row.request);
  const int made = static_cast<int>(row.tokens.size() - row.request->prompt.size());
  if (slice.masked && words == nullptr) result.error = "the mask never came";
  if (fails_at > 0 && slice.samples && made >= fails_at) result.error = "the row failed";
  if (!result.error.empty()) result.tokens.clear();
}

inline void OracleDevice::score(const Row& row, const Slice& slice, int32_t position, SliceResult& result) {
  const auto next = static_cast<size_t>(position) + 1;
  if (position < slice.begin || position >= slice.begin + slice.count) fault("a token outside its slice is scored");
  if (next >= row.request->prompt.size()) return fault("a token behind the prompt is scored");
  result.prompt_logprobs.push_back({OracleModel::score(row.prefixes[next], row.tokens[next]), {}});
}

/// One token: everything that it sees is read and compared, then its own cells are written.
inline void OracleDevice::compute(Row& row, int position, uint64_t before, uint64_t after, int slot) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupSpec& group = groups_[g];
    const auto& table = row.tables[g];
    if (group.kind == GroupSpec::Kind::recurrent) {
      compute_state(row, position, before, after, slot);
      continue;
    }
    const int first = group.kind == GroupSpec::Kind::window ? std::max(0, position - group.window + 1) : 0;
    for (int i = verify_ ? first : position; i < position; ++i) {
      const PageId page = table[size_t(i / group.page_tokens)];
      if (page == no_page || cell(page, i % group.page_tokens) != row.prefixes[size_t(i) + 1]) {
        fault("a wrong cell " + std::to_string(i) + " was read in group " + std::to_string(g) + " for token " +
              std::to_string(position) + " of request " + std::to_string(index(row.request->id)) + " page " +
              std::to_string(index(page)));
      }
    }
    const size_t entry = size_t(position / group.page_tokens);
    if (entry >= table.size() || table[entry] == no_page) {
      fault("token " + std::to_string(position) + " has no page in group " + std::to_string(g));
      continue;
    }
    cell(table[entry], position % group.page_tokens) = after;
  }
}

inline void OracleDevice::compute_state(Row& row, int position, uint64_t before, uint64_t after, int slot) {
  if (position > 0 && (row.state >= row.states.size() || row.states[row.state] != before)) {
    fault("a wrong recurrent state was read");
  }
  row.state = size_t(slot);
  row.states.resize(std::max(row.states.size(), row.state + 1));
  row.states[row.state] = after;
}

/// The token on the device, then the drafts as long as they are what was chosen; the cells of the others are written
/// too.
inline void OracleDevice::run_decoding(Row& row, const Slice& slice, const TokenMask::Words* mask,
                                       SliceResult& result) {
  if (slice.count != 1 + static_cast<int>(slice.drafts.size())) fault("a slice counts its drafts wrong");
  int slot = 0;
  for (;; ++slot) {
    const size_t position = size_t(row.computed);
    compute(row, row.computed, row.prefixes[position], row.prefixes[position + 1], slot);
    ++row.computed;
    sample(row, mask, result);
    if (slot + 1 == slice.count || slice.drafts[size_t(slot)] != row.tokens.back()) break;
    ++accepted_drafts_;
  }
  for (int k = slot + 1; k < slice.count; ++k) spoil(row, row.computed + k - slot - 1, k);
}

inline void OracleDevice::spoil(Row& row, int position, int slot) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].kind == GroupSpec::Kind::recurrent) {
      row.states.resize(std::max(row.states.size(), size_t(slot) + 1));
      row.states[size_t(slot)] = 0xbad;
      continue;
    }
    const int step = groups_[g].page_tokens;
    const size_t entry = size_t(position / step);
    if (entry >= row.tables[g].size() || row.tables[g][entry] == no_page) {
      fault("a draft has no page");
      continue;
    }
    cell(row.tables[g][entry], position % step) = 0xbad;
  }
}

inline void OracleDevice::sample(Row& row, const TokenMask::Words* mask, SliceResult& result) {
  const int32_t token = model_.next(row.prefixes[size_t(row.computed)], *row.request, mask);
  row.tokens.push_back(token);
  row.prefixes.push_back(OracleModel::extend(row.prefixes.back(), token));
  result.tokens.push_back(token);
  if (row.request->sampling.logprobs >= 0) result.logprobs.push_back({static_cast<float>(token), {}});
}

/// The oracle behind the engine's border, on a thread of its own.
class OracleExecutor final : public Executor {
 public:
  /// `device_dies_at`: the step that reports it; 0: none.
  OracleExecutor(OracleDevice device, uint64_t device_dies_at = 0)
      : device_(std::move(device)), dies_at_(device_dies_at) {}
  ~OracleExecutor() override {
    inbox_.close();
    if (thread_.joinable()) thread_.join();
    CHECK(device_.wrong().empty());
  }

  void on_result(std::function<void(StepResult)> deliver) override {
    deliver_ = std::move(deliver);
    thread_ = std::thread([this] { run(); });
  }
  void submit(StepPlan plan) override { inbox_.try_send(Message(std::move(plan))); }
  void provide(StepMasks masks) override { inbox_.try_send(Message(std::move(masks))); }

 private:
  using Message = std::variant<StepPlan, StepMasks>;

  void run() {
    while (std::optional<Message> message = inbox_.receive()) {
      if (auto* plan = std::get_if<StepPlan>(&*message)) {
        device_.submitted(*plan);
        plans_.push_back(std::move(*plan));
      } else {
        auto& masks = std::get<StepMasks>(*message);
        for (RowMask& mask : masks.rows) masks_[masks.step][mask.row] = std::move(mask.words);
      }
      while (!plans_.empty() && has_masks(plans_.front())) run_front();
    }
  }
  bool has_masks(const StepPlan& plan) {
    const auto& masks = masks_[plan.step];
    return std::ranges::all_of(plan.slices,
                               [&](const Slice& slice) { return !slice.masked || masks.contains(slice.row); });
  }
  void run_front() {
    StepResult result = device_.run(plans_.front(), masks_[plans_.front().step]);
    masks_.erase(plans_.front().step);
    plans_.pop_front();
    if (dies_at_ > 0 && result.step >= dies_at_) result.device_error = "the oracle's device died";
    deliver_(std::move(result));
  }

  OracleDevice device_;
  const uint64_t dies_at_;
  Channel<Message> inbox_;
  std::deque<StepPlan> plans_;
  std::map<uint64_t, std::map<RowId, std::optional<TokenMask::Words>>> masks_;
  std::function<void(StepResult)> deliver_;
  std::thread thread_;
};

}  // namespace quern
