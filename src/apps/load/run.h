// A load run: sends requests at their moments, each on a connection and thread of its own, and times the answers.
// Thread: main makes and runs it; stop() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "apps/load/report.h"
#include "apps/load/requests.h"
#include "base/channel.h"
#include "net/http_client.h"
#include "net/sse.h"

namespace quern {

/// Takes a streamed answer in pieces and fills the outcome of its request. Thread: the one of the request.
class AnswerMeter {
 public:
  /// `sent_s` is when the request was sent, on the clock of `now_s` below.
  AnswerMeter(LoadOutcome& outcome, double sent_s) : outcome_(outcome), sent_s_(sent_s) {}

  void take(std::string_view piece, double now_s);
  /// The answer is complete: the outcome's counts and state.
  void finish();

 private:
  void take_event(std::string_view data, double now_s);
  void take_choice(const Json& choice, double now_s);

  LoadOutcome& outcome_;
  const double sent_s_;
  SseReader events_;
  int chunks_ = 0;
  int chunks_with_text_ = 0;
  int tokens_so_far_ = 0;  // by the usage of the chunks
  bool ended_ = false;     // the server has said so
};

/// Sends one request and waits for its answer. Times count from `begin_us`.
LoadOutcome send_and_measure(HttpClient& client, const LoadTarget& target, const LoadPrompt& prompt, int64_t begin_us);

/// What a server that refuses says, as one sentence: "HTTP 404: no such model".
std::string refusal_of(const HttpResponse& response);

class LoadRun {
 public:
  /// At most this many connections, and as many as the process may open.
  static constexpr int kMaxConnections = 1024;

  /// `max_in_flight` 0: as many as are due. Requests that are due beyond the limit wait in order.
  LoadRun(const LoadTarget& target, std::span<const LoadPrompt> prompts, int max_in_flight);
  ~LoadRun();
  LoadRun(const LoadRun&) = delete;
  LoadRun& operator=(const LoadRun&) = delete;

  /// Starts prompt i at second arrivals[i] and returns when all have been answered. `on_done` hears how many have.
  void run(std::span<const double> arrivals, const std::function<void(int done)>& on_done = {});
  /// Any thread: nothing more starts, and what runs is cut off.
  void stop() { events_.try_send(int{kStop}); }

  /// Counts what the answers hold: chunks, and outputs that the server has not counted.
  void count(const LoadTokens& tokens);

  std::span<const LoadOutcome> outcomes() const { return outcomes_; }
  double seconds() const { return seconds_; }
  bool stopped() const { return stopped_; }
  /// Requests that were due while the limit of connections was reached.
  int waited() const { return waited_; }
  int limit() const { return limit_; }
  /// P99 of the time between the moments at which requests were due and their start.
  double late_p99_s(std::span<const double> arrivals) const;

 private:
  static constexpr int kStop = -1;

  struct Worker {
    std::unique_ptr<HttpClient> client;
    std::thread thread;
  };

  void take(int event);
  void start(int index);
  void work(HttpClient& client);
  void measure(HttpClient& client, size_t index);

  const LoadTarget& target_;
  const std::span<const LoadPrompt> prompts_;
  const int limit_;
  std::vector<LoadOutcome> outcomes_;  // each written by the thread of its request, read after its event
  Channel<int> jobs_;
  Channel<int> events_;  // a request that has ended, or kStop
  std::vector<Worker> workers_;
  std::atomic<bool> stopped_{false};
  int64_t begin_us_ = 0;
  double seconds_ = 0.0;
  int in_flight_ = 0;
  int done_ = 0;
  int waited_ = 0;
};

}  // namespace quern
