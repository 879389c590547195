// Download: files of one repository on their way into the cache, over several connections at once. Thread: run() is the
// caller's; each connection has a thread of its own. The mutex is here because a range is handed out by what has become
// of all others, and workers wait for that to change.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "base/result.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "hub/part_file.h"
#include "hub/pull.h"

namespace quern {

class Download {
 public:
  /// `files` have sizes and digests.
  Download(const HubOptions& options, const HttpUrl& endpoint, const HubCache& cache, std::string repository,
           std::string commit, const std::vector<HubFile>& files);

  /// Returns when all files are in the cache and checked, or when one cannot be had.
  Status run(const OnFileProgress& on_progress);

 private:
  struct Incoming {
    HubFile file;
    PartFile part;
    FileLock lock;
    std::atomic<int64_t> completed = 0;
    std::atomic<bool> finished = false;
    Guarded<std::optional<HttpUrl>> location;  // where the hub sent us for it
    int64_t told = -1;
    // Under the mutex.
    int open_ranges = 0;
    bool whole = false;  // the server sends no ranges
  };
  struct Range {
    Incoming* incoming = nullptr;
    int index = 0;  // in the part file; -1: the whole file in one piece, which is always begun again
    int64_t begin = 0, size = 0, done = 0;
    int failures = 0;  // in a row, without a byte
  };
  enum class Ending : uint8_t { complete, again, without_ranges, failed };
  struct Outcome {
    Ending ending = Ending::again;
    Error error;
    std::chrono::milliseconds wait{0};
  };

  Status open_files(const OnFileProgress& on_progress);
  Status open_file(Incoming& incoming, const OnFileProgress& on_progress);
  Status check_space() const;
  Status fetch_all(const OnFileProgress& on_progress);
  bool tell(Incoming& incoming, const OnFileProgress& on_progress, bool waiting) const;

  void work(HubClient& client);
  std::optional<Range> next();
  Outcome fetch(HubClient& client, Range& range);
  Outcome judge(const HttpResponse& head, const Range& range, bool partial) const;
  Outcome judge_answer(const HubClient& client, const HubClient::Answer& answer, Range& range, bool remembered) const;
  void settle(Range range, const Outcome& outcome);
  void retry(Range range, const Outcome& outcome);
  Status complete(Incoming& incoming) const;
  void end(Error error);

  const HubOptions options_;
  const HttpUrl endpoint_;
  const HubCache cache_;
  const std::string repository_;
  const std::string commit_;
  std::vector<std::unique_ptr<Incoming>> files_;
  std::atomic<bool> ending_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Range> queue_;
  int running_ = 0;  // ranges that are being worked on
  int workers_ = 0;
  std::optional<Error> failure_;
};

}  // namespace quern
