#include "hub/download.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <sys/stat.h>
#include <thread>

#include "base/file.h"

namespace quern {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTellInterval{100};
constexpr milliseconds kQuiet{30'000};
constexpr milliseconds kLongestRange{4 * 3600 * 1000};
constexpr milliseconds kLongestWait{60'000};
constexpr int64_t kNoteBytes = 1 << 20;
constexpr int64_t kSpareBytes = 64 << 20;
constexpr int64_t kLargestRefusal = 1 << 20;

/// "bytes 0-99/1000" as numbers; -1 for a total that is not known.
struct ContentRange {
  int64_t first = -1, last = -1, total = -1;
};
std::optional<ContentRange> parse_content_range(std::string_view text) {
  ContentRange range;
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const auto number = [&](int64_t* into, char after) {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), *into);
    const auto taken = static_cast<size_t>(end - text.data());
    if (failure != std::errc() || *into < 0 || (after != 0 && (taken >= text.size() || text[taken] != after)))
      return false;
    text.remove_prefix(std::min(text.size(), taken + (after != 0 ? 1 : 0)));
    return true;
  };
  if (!number(&range.first, '-') || !number(&range.last, '/')) return std::nullopt;
  if (text != "*" && (!number(&range.total, 0) || !text.empty())) return std::nullopt;
  return range;
}

int64_t size_of(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

}  // namespace

Download::Download(const HubOptions& options, const HttpUrl& endpoint, const HubCache& cache, std::string repository,
                   std::string commit, const std::vector<HubFile>& files)
    : options_(options),
      endpoint_(endpoint),
      cache_(cache),
      repository_(std::move(repository)),
      commit_(std::move(commit)) {
  std::map<std::string, HubFile> by_digest;  // equal files come once; and all processes take locks in this order
  for (const HubFile& file : files) by_digest.emplace(file.digest, file);
  for (auto& [digest, file] : by_digest) {
    files_.push_back(std::make_unique<Incoming>());
    files_.back()->file = std::move(file);
  }
}

Status Download::run(const OnFileProgress& on_progress) {
  TRY(cache_.prepare(repository_));
  TRY(open_files(on_progress));
  TRY(check_space());
  return fetch_all(on_progress);
}

Status Download::open_files(const OnFileProgress& on_progress) {
  for (const auto& incoming : files_) {
    TRY(open_file(*incoming, on_progress));
    if (!tell(*incoming, on_progress, false)) return Error{"the pull was stopped; what has come is kept"};
    if (incoming->finished) continue;
    for (int i = 0; i < incoming->part.ranges(); ++i) {
      Range range{incoming.get(), i, incoming->part.range_begin(i), incoming->part.range_size(i)};
      ASSIGN_OR_RETURN(range.done, incoming->part.noted(i));
      incoming->completed += range.done;
      ++incoming->open_ranges;
      queue_.push_back(range);
    }
    if (incoming->open_ranges == 0) TRY(complete(*incoming));
  }
  return {};
}

/// Waits until no other process brings the file; then it is there, or it is ours to bring.
Status Download::open_file(Incoming& incoming, const OnFileProgress& on_progress) {
  const HubFile& file = incoming.file;
  const std::string blob = cache_.blob(repository_, file.digest);
  for (bool locked = false; !locked;) {
    if (size_of(blob) == file.bytes) {
      incoming.completed = file.bytes;
      incoming.finished = true;
      return {};
    }
    ASSIGN_OR_RETURN(auto lock, FileLock::try_lock(cache_.lock(repository_, file.digest)));
    locked = lock.has_value();
    if (locked) {
      incoming.lock = std::move(*lock);
    } else {
      if (!tell(incoming, on_progress, true)) return Error{"the pull was stopped; what has come is kept"};
      std::this_thread::sleep_for(kTellInterval);
    }
  }
  if (size_of(blob) == file.bytes) {
    incoming.completed = file.bytes;
    incoming.finished = true;
    incoming.lock = FileLock();
    return {};
  }
  ASSIGN_OR_RETURN(incoming.part, PartFile::open(blob + ".part", file.bytes, options_.range_bytes));
  return {};
}

Status Download::check_space() const {
  int64_t needed = 0;
  for (const auto& incoming : files_) needed += incoming->file.bytes - incoming->completed;
  ASSIGN_OR_RETURN(const int64_t free, cache_.free_bytes());
  if (needed == 0 || needed + kSpareBytes <= free) return {};
  return Error{
      fmt::format("{} needs {:.2f} GB more, but {} has {:.2f} GB free: make room, or set HF_HOME to a folder on "
                  "another disk",
                  repository_, gigabytes(needed), cache_.root(), gigabytes(free))};
}

Status Download::fetch_all(const OnFileProgress& on_progress) {
  std::vector<std::unique_ptr<HubClient>> clients;
  std::vector<std::thread> threads;
  workers_ = static_cast<int>(std::min<size_t>(queue_.size(), static_cast<size_t>(std::max(1, options_.connections))));
  const int count = workers_;
  for (int i = 0; i < count; ++i) clients.push_back(std::make_unique<HubClient>(options_, endpoint_));
  for (const auto& client : clients) threads.emplace_back([this, raw = client.get()] { work(*raw); });
  for (bool more = count > 0; more;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kTellInterval, [&] { return workers_ == 0; });
      more = workers_ > 0;
    }
    for (const auto& incoming : files_) {
      if (!tell(*incoming, on_progress, false)) end(Error{"the pull was stopped; what has come is kept"});
    }
    if (!ending_) continue;
    for (const auto& client : clients) client->cancel();
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& incoming : files_) {
    if (!failure_ && !tell(*incoming, on_progress, false)) return Error{"the pull was stopped; what has come is kept"};
  }
  return failure_ ? Status(*failure_) : Status();
}

/// Says how far a file is if that is news; false when nobody wants the rest.
bool Download::tell(Incoming& incoming, const OnFileProgress& on_progress, bool waiting) const {
  const int64_t total = incoming.file.bytes;
  const bool finished = incoming.finished;
  // All bytes are here before they are checked: until then one is kept back.
  const int64_t completed =
      finished ? total : std::clamp<int64_t>(incoming.completed, 0, std::max<int64_t>(0, total - 1));
  if (!on_progress || (completed == incoming.told && !waiting)) return true;
  incoming.told = completed;
  FileProgress progress{incoming.file.path, incoming.file.digest, total, completed, 0, 0, waiting};
  for (const auto& other : files_) {
    progress.all_total += other->file.bytes;
    progress.all_completed += std::clamp<int64_t>(other->completed, 0, other->file.bytes);
  }
  return on_progress(progress);
}

void Download::work(HubClient& client) {
  while (auto range = next()) {
    const Outcome outcome = fetch(client, *range);
    settle(std::move(*range), outcome);
  }
  const std::lock_guard lock(mutex_);
  --workers_;
  changed_.notify_all();
}

/// The next range to fetch; nothing when all are done or the download ends.
std::optional<Download::Range> Download::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || !queue_.empty() || running_ == 0; });
  if (ending_ || queue_.empty()) return std::nullopt;
  Range range = queue_.front();
  queue_.pop_front();
  ++running_;
  return range;
}

Download::Outcome Download::fetch(HubClient& client, Range& range) {
  Incoming& incoming = *range.incoming;
  if (range.index < 0) {
    range.done = 0;
    incoming.completed = 0;
  }
  const int64_t before = range.done;
  const int64_t begin = range.begin + before, end = range.begin + range.size;
  const bool partial = begin > 0 || end < incoming.file.bytes;
  HttpHeaders headers;
  if (partial) headers.emplace_back("range", fmt::format("bytes={}-{}", begin, end - 1));

  Outcome outcome;
  bool judged = false;
  int64_t noted = range.done;
  HttpReading reading{kLongestRange, kQuiet, kLargestRefusal};
  reading.on_head = [&](const HttpResponse& head) {
    if (head.status / 100 != 2) return true;
    outcome = judge(head, range, partial);
    judged = outcome.ending != Ending::complete;
    return !judged;
  };
  reading.on_piece = [&](std::string_view piece) {
    if (ending_) return false;
    const int64_t at = range.begin + range.done;
    Status written;
    if (static_cast<int64_t>(piece.size()) > end - at) {
      written = Error{fmt::format("the server sends more of {} than it has", incoming.file.path)};
    } else {
      written = incoming.part.write(at, piece);
    }
    if (written.ok()) {
      range.done += static_cast<int64_t>(piece.size());
      incoming.completed += static_cast<int64_t>(piece.size());
      if (range.index >= 0 && range.done - noted >= kNoteBytes)
        written = incoming.part.note(range.index, noted = range.done);
    }
    if (written.ok()) return true;
    outcome = {Ending::failed, written.error()};
    judged = true;
    return false;
  };
  const auto known = incoming.location.with([](const std::optional<HttpUrl>& url) { return url; });
  const HttpUrl url = known ? *known : client.file_url(repository_, commit_, incoming.file.path);
  const auto answer = client.ask("GET", url, headers, reading);
  if (range.index >= 0 && range.done != noted) static_cast<void>(incoming.part.note(range.index, range.done));
  if (range.index >= 0 && range.done > before) range.failures = 0;
  if (judged) return outcome;
  if (!answer.ok()) return {Ending::again, answer.error()};
  return judge_answer(client, *answer, range, known.has_value());
}

/// Whether a good answer holds what was asked for: `complete` when it does.
Download::Outcome Download::judge(const HttpResponse& head, const Range& range, bool partial) const {
  const HubFile& file = range.incoming->file;
  const auto lies = [&](int64_t other) {
    return Outcome{Ending::failed,
                   Error{fmt::format("{}: the server has {} bytes of it and lists {}: the files changed, or "
                                     "the server is broken; pull again",
                                     file.path, other, file.bytes)}};
  };
  if (head.status == 206) {
    const auto given = parse_content_range(header_of(head, "content-range"));
    if (!given)
      return {Ending::failed, Error{fmt::format("{}: the server does not say which part it sends", file.path)}};
    if (given->total >= 0 && given->total != file.bytes) return lies(given->total);
    if (given->first != range.begin + range.done || given->last >= range.begin + range.size)
      return {Ending::failed,
              Error{fmt::format("{}: the server sends another part than the one asked for", file.path)}};
    return {Ending::complete, {}};
  }
  if (partial) return {Ending::without_ranges, {}};
  const std::string length = header_of(head, "content-length");
  if (!length.empty() && length != std::to_string(file.bytes)) return lies(std::atoll(length.c_str()));
  return {Ending::complete, {}};
}

/// What follows from an answer that was read to its end.
Download::Outcome Download::judge_answer(const HubClient& client, const HubClient::Answer& answer, Range& range,
                                         bool remembered) const {
  Incoming& incoming = *range.incoming;
  const int status = answer.response.status;
  if (status / 100 == 2) {
    incoming.location.with([&](std::optional<HttpUrl>& url) { url = answer.from; });
    if (range.done == range.size) return {Ending::complete, {}};
    return {Ending::again, Error{fmt::format("the server sends less of {} than it has", incoming.file.path)}};
  }
  const Error error =
      client.explain(answer.response, repository_, fmt::format("{} of {}", incoming.file.path, repository_));
  if (remembered) {  // such addresses are good for a while only
    incoming.location.with([](std::optional<HttpUrl>& url) { url.reset(); });
    return {Ending::again, error};
  }
  if (!is_passing(status)) return {Ending::failed, error};
  const std::string after = header_of(answer.response, "retry-after");
  return {Ending::again, error, std::min(kLongestWait, milliseconds(1000 * std::max(0, std::atoi(after.c_str()))))};
}

void Download::settle(Range range, const Outcome& outcome) {
  Incoming& incoming = *range.incoming;
  if (outcome.ending == Ending::failed) {
    end(outcome.error);
  } else if (outcome.ending == Ending::again) {
    retry(range, outcome);
  }
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    const bool dropped = incoming.whole && range.index >= 0;
    if (outcome.ending == Ending::without_ranges && !dropped) {
      incoming.whole = true;
      incoming.open_ranges = 1;
      std::erase_if(queue_, [&](const Range& other) { return other.incoming == &incoming; });
      queue_.push_back({&incoming, -1, 0, incoming.file.bytes});
    }
    if (outcome.ending == Ending::complete && !dropped) last = --incoming.open_ranges == 0;
  }
  if (last) {
    const Status completed = complete(incoming);
    if (!completed.ok()) end(completed.error());
  }
  const std::lock_guard lock(mutex_);
  --running_;
  changed_.notify_all();
}

/// Puts a range back after a while, unless it has failed too often.
void Download::retry(Range range, const Outcome& outcome) {
  if (ending_) return;
  if (++range.failures > options_.retries)
    return end(Error{fmt::format("{}; what has come is kept: pull again to go on", outcome.error.message)});
  const milliseconds pause = std::max(outcome.wait, milliseconds(250 << std::min(range.failures - 1, 6)));
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, pause, [&] { return ending_.load(); });
  if (!(range.incoming->whole && range.index >= 0)) queue_.push_front(range);
}

/// All bytes are there: checks them and gives the file its name.
Status Download::complete(Incoming& incoming) const {
  const HubFile& file = incoming.file;
  ASSIGN_OR_RETURN(const std::string digest, incoming.part.digest(file.digest));
  if (digest != file.digest) {
    incoming.part.discard();
    return Error{fmt::format("{}: what came has the digest {}, but the hub lists {}; it was thrown away: pull again",
                             file.path, digest, file.digest)};
  }
  TRY(incoming.part.finish(cache_.blob(repository_, file.digest)));
  incoming.completed = file.bytes;
  incoming.finished = true;
  incoming.lock = FileLock();
  return {};
}

void Download::end(Error error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  ending_ = true;
  changed_.notify_all();
}

}  // namespace quern
