// For tests: a tokenizer whose tokens are bytes, and a service that answers with scripted tokens.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/channel.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "server/token_service.h"
#include "text/tokenizer.h"

namespace quern {

/// Ids 0-255 are bytes, 256 is BOS, 257 EOS, 258 a special token.
class ByteTokenizer : public Tokenizer {
 public:
  static constexpr int32_t kBos = 256;
  static constexpr int32_t kEos = 257;
  static constexpr int32_t kSpecial = 258;

  ByteTokenizer() {
    for (int i = 0; i < 256; ++i) bytes_[static_cast<size_t>(i)] = std::string(1, static_cast<char>(i));
  }
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special) ids.push_back(kBos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  Result<std::vector<int32_t>> encode_pieces(std::span<const TextPiece> pieces, bool add_special) const override {
    std::string text;
    for (const TextPiece& piece : pieces) text += piece.text;
    return encode(text, {.add_special = add_special});
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (!is_special(id) || !skip_special) text += token_bytes(id);
    }
    return text;
  }
  std::string_view token_bytes(int32_t id) const override {
    static constexpr std::array<std::string_view, 3> special = {"<s>", "</s>", "<x>"};
    if (id >= kBos && id <= kSpecial) return special[static_cast<size_t>(id - kBos)];
    return id >= 0 && id < kBos ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
  }
  std::string_view token_text(int32_t id) const override { return token_bytes(id); }
  std::optional<int32_t> id_of(std::string_view token_text) const override {
    for (int32_t id = 0; id < size(); ++id) {
      if (token_bytes(id) == token_text) return id;
    }
    return std::nullopt;
  }
  bool is_special(int32_t id) const override { return id >= kBos; }
  int size() const override { return 259; }
  std::optional<int32_t> bos() const override { return kBos; }
  std::optional<int32_t> eos() const override { return kEos; }
  bool strips_leading_space() const override { return false; }
  std::span<const int32_t> end_of_generation() const override { return end_; }
  std::string description() const override { return "bytes"; }

 private:
  std::array<std::string, 256> bytes_;
  std::vector<int32_t> end_{kEos};
};

/// Answers each request with the bytes of `script`, one token an event; then the end token. A thread of its own plays
/// the engine's.
class ScriptedService final : public TokenService {
 public:
  using Script = std::function<std::string(const Request&)>;

  explicit ScriptedService(Script script) : script_(std::move(script)), thread_([this] { run(); }) {}
  /// As an engine, it ends what is still running.
  ~ScriptedService() override {
    state_.with([](State& state) {
      for (auto& [id, live] : state.live) live = false;
    });
    work_.close();
    steps_.try_send(0);
    thread_.join();
  }

  SubmitResult submit(Request request) override {
    const SubmitResult refused = state_.with([&](State& state) {
      if (state.stopping) return SubmitResult::stopping;
      if (static_cast<int32_t>(state.live.size()) >= state.capacity) return SubmitResult::queue_full;
      state.live[request.id] = true;
      state.seen.push_back(request);
      return SubmitResult::accepted;
    });
    if (refused == SubmitResult::accepted) work_.try_send(Job(std::move(request)));
    return refused;
  }
  void cancel(RequestId id) override {
    state_.with([&](State& state) {
      if (const auto it = state.live.find(id); it != state.live.end()) it->second = false;
      ++state.cancels;
    });
    steps_.try_send(0);
  }
  void stop_accepting() override {
    state_.with([](State& state) { state.stopping = true; });
  }
  EngineStats stats() const override {
    return state_.with([](const State& state) {
      EngineStats stats = state.stats;
      stats.running = static_cast<int32_t>(state.live.size());
      return stats;
    });
  }

  void reset_prefix_cache() override { ++resets_; }

  // What tests set and see.
  int resets() const { return resets_; }
  void limit(int32_t capacity) {
    state_.with([&](State& state) { state.capacity = capacity; });
  }
  /// From now on each token waits for a step().
  void hold() {
    state_.with([](State& state) { state.held = true; });
  }
  void step(int count = 1) {
    for (int i = 0; i < count; ++i) steps_.try_send(1);
  }
  /// The next requests end this way after their script.
  void finish_with(FinishReason reason, std::string error = "") {
    state_.with([&](State& state) {
      state.finish = reason;
      state.error = std::move(error);
    });
  }
  void set_stats(const EngineStats& stats) {
    state_.with([&](State& state) { state.stats = stats; });
  }
  std::vector<Request> seen() const {
    return state_.with([](const State& state) { return state.seen; });
  }
  int cancels() const {
    return state_.with([](const State& state) { return state.cancels; });
  }
  /// Waits until no request is live.
  bool idle() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (stats().running > 0) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  struct Job {
    explicit Job(Request asked) : request(std::move(asked)) {}
    Request request;
    std::string text;
    size_t next = 0;
    bool started = false;
  };
  struct State {
    std::map<RequestId, bool> live;  // false: cancelled
    std::vector<Request> seen;       // kept with their sinks, as an executor may do
    int32_t capacity = 1000;
    int cancels = 0;
    bool stopping = false;
    bool held = false;
    std::optional<FinishReason> finish;
    std::string error;
    EngineStats stats;
  };

  /// All jobs move on together, as in a batch.
  void run() {
    std::vector<Job> jobs;
    while (true) {
      while (auto job = jobs.empty() ? work_.receive() : work_.try_receive()) jobs.push_back(std::move(*job));
      if (jobs.empty()) return;
      if (state_.with([](State& state) { return state.held; })) {
        const auto step = steps_.receive_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
        if (step != 1) {  // woken to look for cancelled and new ones
          std::erase_if(jobs, [&](Job& job) { return cancelled(job); });
          continue;
        }
      }
      std::erase_if(jobs, [&](Job& job) { return cancelled(job) || advance(job); });
    }
  }

  bool cancelled(Job& job) {
    if (state_.with([&](State& state) { return state.live[job.request.id]; })) return false;
    TokenEvent event = make_event(job);
    event.finish = FinishReason::cancelled;
    return end(job, std::move(event));
  }

  TokenEvent make_event(const Job& job) const {
    TokenEvent event;
    event.request = job.request.id;
    event.prompt_tokens = static_cast<int32_t>(job.request.prompt.size());
    event.cached_tokens = 1;
    event.output_tokens = static_cast<int32_t>(job.next);
    event.queued_us = 10;
    return event;
  }

  bool end(const Job& job, TokenEvent event) {
    state_.with([&](State& state) { state.live.erase(job.request.id); });
    job.request.sink->deliver(std::move(event));
    return true;
  }

  /// One token; true when it was the last.
  bool advance(Job& job) {
    if (!std::exchange(job.started, true)) job.text = script_(job.request);
    TokenEvent event = make_event(job);
    const auto [finish, error] = state_.with([](State& state) { return std::pair(state.finish, state.error); });
    const bool at_end = job.next == job.text.size();
    if (at_end && finish) {
      event.finish = *finish;
      event.error = error;
      return end(job, std::move(event));
    }
    const size_t scored = job.next == 0 && job.request.sampling.prompt_logprobs >= 0 ? job.request.prompt.size() : 0;
    for (size_t i = 1; i < scored; ++i) {
      event.prompt_logprobs.push_back({-0.25F, {{job.request.prompt[i], -0.25F}, {'z', -1.5F}}, 1});
    }
    if (job.request.max_tokens == 0) {
      event.finish = FinishReason::length;
      return end(job, std::move(event));
    }
    const int32_t token = at_end ? ByteTokenizer::kEos : static_cast<unsigned char>(job.text[job.next]);
    ++job.next;
    event.tokens = {token};
    event.output_tokens = static_cast<int32_t>(job.next);
    if (job.request.sampling.logprobs >= 0) event.logprobs = {{-0.5F, {{token, -0.5F}, {'z', -1.5F}}}};
    const auto has = [&](const std::vector<int32_t>& ids) {
      return std::find(ids.begin(), ids.end(), token) != ids.end();
    };
    if (static_cast<int32_t>(job.next) > job.request.min_tokens &&
        (has(job.request.end_tokens) || has(job.request.stop_tokens))) {
      event.finish = FinishReason::stop;
      event.stop_token = token;
    } else if (static_cast<int32_t>(job.next) == job.request.max_tokens || at_end) {
      event.finish = FinishReason::length;
    }
    if (event.finish) return end(job, std::move(event));
    job.request.sink->deliver(std::move(event));
    return false;
  }

  const Script script_;
  std::atomic<int> resets_ = 0;
  Channel<Job> work_;
  Channel<int> steps_;
  mutable Guarded<State> state_;
  std::thread thread_;
};

}  // namespace quern
