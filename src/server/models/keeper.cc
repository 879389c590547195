#include "server/models/keeper.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <future>
#include <limits>
#include <thread>
#include <utility>

#include "base/channel.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"

namespace quern {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kLookAgainUs = 100'000;  // at a model that should go but is used

int64_t us_of(double seconds) { return static_cast<int64_t>(std::min(seconds, 1e9) * 1e6); }

/// What is done once the lock is not held: callbacks, and letting go of models.
using After = std::vector<std::function<void()>>;

struct Waiting {
  int64_t since_us = 0;
  int64_t deadline_us = 0;
  bool own_deadline = false;  // the request's, not the keeper's
  ModelKeeper::Use use;
};

struct Entry {
  Entry(ModelCard given, int32_t block_tokens)
      : card(std::move(given)), metrics(card.names.front(), card.max_model_len, block_tokens, true) {}

  const std::string& name() const { return card.names.front(); }
  bool is_called(std::string_view wanted) const { return std::ranges::find(card.names, wanted) != card.names.end(); }

  ModelCard card;
  Metrics metrics;
  ModelRef model;                      // loaded, and here to stay for now
  std::weak_ptr<ServedModel> leaving;  // let go; its last requests use it
  bool loading = false;
  bool wake_again = false;  // was loaded when the server was sent to sleep
  int64_t bytes = 0;        // held until the model is destroyed, or being taken
  std::deque<Waiting> waiting;
  int64_t used_us = 0;   // when last seen in use
  int64_t retry_us = 0;  // not loaded before that, after an error
  std::string error;
  std::optional<double> keep_alive_s;
  EngineStats past;  // of models that are gone
  int64_t loads = 0;
  int64_t failed_loads = 0;
  int64_t unloads = 0;
};

struct Job {
  Entry* entry = nullptr;             // to load, or whose model is gone
  std::unique_ptr<ServedModel> gone;  // to destroy
};

struct Books {
  std::deque<Entry> entries;
  bool busy = false;  // a model is being loaded
  bool accepting = true;
  bool started = false;  // before that, errors are the caller's to tell
  int sleep_level = 0;
  std::vector<std::function<void()>> sleepers;  // called when all memory is free
};

void add_counters(EngineStats& sum, const EngineStats& more) {
  sum.steps += more.steps;
  sum.prompt_tokens += more.prompt_tokens;
  sum.generation_tokens += more.generation_tokens;
  sum.prefix_queries_tokens += more.prefix_queries_tokens;
  sum.prefix_hits_tokens += more.prefix_hits_tokens;
  sum.preemptions += more.preemptions;
  sum.requests_accepted += more.requests_accepted;
  for (size_t i = 0; i < std::size(sum.requests_finished); ++i) sum.requests_finished[i] += more.requests_finished[i];
  sum.host_us += more.host_us;
  sum.device_us += more.device_us;
}

ApiError unavailable(std::string message) { return plain_error(503, std::move(message)); }
ApiError asleep() { return unavailable("The server sleeps; POST /wake_up wakes it."); }
ApiError not_loaded(const Entry& entry) {
  return unavailable(fmt::format("The model `{}` could not be loaded.", entry.name()));
}

Entry* find_in(Books& books, std::string_view name) {
  if (name.empty()) return &books.entries.front();
  const auto found = std::ranges::find_if(books.entries, [&](const Entry& entry) { return entry.is_called(name); });
  return found == books.entries.end() ? nullptr : &*found;
}

void count(Entry& entry, const ApiError& error) {
  entry.metrics.count(error.status == 404   ? Refusal::invalid
                      : error.status == 429 ? Refusal::queue_full
                                            : Refusal::not_loaded);
}

void refuse_waiting(Entry& entry, const ApiError& error, After& after) {
  for (size_t i = 0; i < entry.waiting.size(); ++i) count(entry, error);
  for (Waiting& one : entry.waiting) after.push_back([use = std::move(one.use), error] { use(error); });
  entry.waiting.clear();
}

/// The model is destroyed when its requests have ended; until then its memory counts.
void let_go(Entry& entry, After& after) {
  log_info("{} is unloaded", entry.name());
  ++entry.unloads;
  entry.keep_alive_s.reset();
  entry.leaving = entry.model;
  after.push_back([model = std::move(entry.model)] {});
  entry.model = nullptr;
}

void hand_over(Entry& entry, After& after) {
  entry.used_us = now_us();
  for (Waiting& one : entry.waiting)
    after.push_back([use = std::move(one.use), model = entry.model]() mutable { use(std::move(model)); });
  entry.waiting.clear();
}

}  // namespace

/// What models that are out, both threads and callers share.
struct ModelKeeper::Shelf : std::enable_shared_from_this<Shelf> {
  Shelf(const KeeperOptions& given, ModelHost& from) : options(given), host(from) {}

  /// A model in use; where it goes when nobody uses it. Its engine is never destroyed by one of its own threads.
  struct Lease {
    Lease(std::unique_ptr<ServedModel> made, Entry& of, std::shared_ptr<Shelf> from)
        : model(std::move(made)), entry(of), shelf(std::move(from)) {}
    ~Lease() {
      if (model->engine) shelf->take_back(entry, std::move(model));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    std::unique_ptr<ServedModel> model;
    Entry& entry;
    const std::shared_ptr<Shelf> shelf;
  };

  void take_back(Entry& entry, std::unique_ptr<ServedModel> model) {
    books.with([&](Books&) { add_counters(entry.past, model->engine->stats()); });
    jobs.try_send(Job{&entry, std::move(model)});
  }

  /// Runs `change` on the books, then what it leaves to be done.
  template <typename Change>
  void update(Change&& change) {
    After after;
    books.with([&](Books& all) { change(all, after); });
    for (auto& task : after) {
      task();
      task = nullptr;
    }
  }

  void keep_time();
  int64_t look_at_time(Books& all, After& after) const;
  int64_t expire(Entry& entry, int64_t now, After& after) const;
  int64_t idle(Entry& entry, int64_t now, After& after) const;
  void load_next(Books& all, After& after);
  bool make_room(Books& all, const Entry& wanted, After& after) const;
  void run_jobs();
  void load(Entry& entry);
  void destroy(Job job);
  std::optional<ApiError> refuses(const Books& all, const Entry* entry, std::string_view name) const;
  double keep_alive_s(const Entry& entry) const { return entry.keep_alive_s.value_or(options.keep_alive_s); }

  const KeeperOptions options;
  ModelHost& host;
  Guarded<Books> books;
  Channel<int> notes;  // something has changed; closed at the end
  Channel<Job> jobs;
  std::atomic<int> engines = 0;  // that exist
  std::atomic<bool> ending = false;
  std::thread keeper;
  std::thread loader;
};

/// Thread: keeper.
void ModelKeeper::Shelf::keep_time() {
  while (!notes.closed()) {
    int64_t next_us = kNever;
    update([&](Books& all, After& after) {
      next_us = look_at_time(all, after);
      load_next(all, after);
    });
    if (next_us == kNever) {
      notes.receive();
    } else {
      notes.receive_until(std::chrono::steady_clock::now() + std::chrono::microseconds(next_us - now_us()));
    }
  }
}

/// When to look again.
int64_t ModelKeeper::Shelf::look_at_time(Books& all, After& after) const {
  const int64_t now = now_us();
  int64_t next = kNever;
  bool empty = true;
  for (Entry& entry : all.entries) {
    next = std::min({next, expire(entry, now, after), idle(entry, now, after)});
    empty = empty && entry.bytes == 0 && !entry.loading;
  }
  if (empty) {
    for (auto& done : all.sleepers) after.push_back(std::move(done));
    all.sleepers.clear();
  }
  return next;
}

int64_t ModelKeeper::Shelf::expire(Entry& entry, int64_t now, After& after) const {
  int64_t next = kNever;
  for (auto one = entry.waiting.begin(); one != entry.waiting.end();) {
    if (one->deadline_us > now) {
      next = std::min(next, one->deadline_us);
      ++one;
      continue;
    }
    const ApiError error =
        one->own_deadline
            ? plain_error(504, "The request took longer than its deadline.")
            : unavailable(fmt::format("The model `{}` is not loaded yet; try again later.", entry.name()));
    count(entry, error);
    after.push_back([use = std::move(one->use), error] { use(error); });
    one = entry.waiting.erase(one);
  }
  return next;
}

int64_t ModelKeeper::Shelf::idle(Entry& entry, int64_t now, After& after) const {
  const double seconds = keep_alive_s(entry);
  if (!entry.model || entry.card.pinned || seconds < 0) return kNever;
  const int64_t keep_us = us_of(seconds);
  const bool in_use = entry.model.use_count() > 1;
  if (in_use) entry.used_us = now;
  if (keep_us > 0 && (in_use || entry.used_us + keep_us > now))
    return std::max(entry.used_us + keep_us, in_use ? now + kLookAgainUs : now);
  let_go(entry, after);
  return kNever;
}

/// Why nobody need wait for a model.
std::optional<ApiError> ModelKeeper::Shelf::refuses(const Books& all, const Entry* entry, std::string_view name) const {
  if (entry == nullptr) {
    std::vector<std::string> names;
    for (const Entry& one : all.entries) names.insert(names.end(), one.card.names.begin(), one.card.names.end());
    return model_not_found(name, names);
  }
  if (!all.accepting) return unavailable("The server is shutting down.");
  if (all.sleep_level > 0) return asleep();
  if (now_us() < entry->retry_us) return not_loaded(*entry);
  size_t waiting = 0;
  for (const Entry& one : all.entries) waiting += one.waiting.size();
  if (waiting < options.max_waiting) return std::nullopt;
  return plain_error(429, "Too many requests wait for models to be loaded; try again later.");
}

/// Gives the model whose request has waited for longest its place.
void ModelKeeper::Shelf::load_next(Books& all, After& after) {
  while (!all.busy && all.accepting) {
    Entry* wanted = nullptr;
    for (Entry& entry : all.entries) {
      if (entry.waiting.empty()) continue;
      if (wanted == nullptr || entry.waiting.front().since_us < wanted->waiting.front().since_us) wanted = &entry;
    }
    if (wanted == nullptr) return;
    if (ModelRef back = wanted->leaving.lock()) {
      wanted->model = std::move(back);
      wanted->leaving.reset();
      hand_over(*wanted, after);
      continue;
    }
    if (wanted->bytes > 0) return;  // until its last copy is destroyed
    if (!make_room(all, *wanted, after)) {
      log_error("{} needs {} bytes of memory, more than the {} bytes for models leave beside those that are pinned",
                wanted->name(), wanted->card.bytes, options.memory_bytes);
      refuse_waiting(
          *wanted,
          unavailable(fmt::format("The model `{}` does not fit into the memory of this server.", wanted->name())),
          after);
      continue;
    }
    int64_t held = 0;
    for (const Entry& entry : all.entries) held += entry.bytes;
    if (options.memory_bytes > 0 && held + wanted->card.bytes > options.memory_bytes) return;  // until it is free
    all.busy = true;
    wanted->loading = true;
    wanted->bytes = wanted->card.bytes;
    after.push_back([this, wanted] { jobs.try_send(Job{wanted, nullptr}); });
  }
}

/// Lets go of models until the wanted one will fit: those that nobody uses first, by their last use. False when it
/// never will.
bool ModelKeeper::Shelf::make_room(Books& all, const Entry& wanted, After& after) const {
  if (options.memory_bytes == 0) return true;
  int64_t staying = wanted.card.bytes;
  std::vector<Entry*> loaded;
  for (Entry& entry : all.entries) {
    if (!entry.model) continue;
    staying += entry.bytes;
    if (!entry.card.pinned) loaded.push_back(&entry);
  }
  std::ranges::sort(loaded, {},
                    [](const Entry* entry) { return std::pair(entry->model.use_count() > 1, entry->used_us); });
  size_t count = 0;
  while (staying > options.memory_bytes && count < loaded.size()) staying -= loaded[count++]->bytes;
  if (staying > options.memory_bytes) return false;
  for (size_t i = 0; i < count; ++i) let_go(*loaded[i], after);
  return true;
}

/// Thread: loader.
void ModelKeeper::Shelf::run_jobs() {
  while (!ending || engines > 0) {
    auto job = jobs.receive();
    if (!job) return;
    if (job->gone) {
      destroy(std::move(*job));
    } else if (job->entry != nullptr) {
      load(*job->entry);
    }
    notes.try_send(0);
  }
}

void ModelKeeper::Shelf::destroy(Job job) {
  job.gone.reset();
  engines.fetch_sub(1);
  books.with([&](Books&) { job.entry->bytes = 0; });
}

void ModelKeeper::Shelf::load(Entry& entry) {
  const int64_t start = now_us();
  auto parts = ending ? Result<ModelParts>(Error{"the server is stopping"}) : host.load(entry.name());
  ModelRef made;
  int64_t bytes = 0;
  if (parts.ok()) {
    bytes = std::max<int64_t>(1, parts->bytes);  // 0 says that it is gone
    engines.fetch_add(1);
    const auto lease = std::make_shared<Lease>(std::make_unique<ServedModel>(std::move(*parts), entry.metrics), entry,
                                               shared_from_this());
    made = ModelRef(lease, lease->model.get());
  }
  update([&](Books& all, After& after) {
    all.busy = false;
    entry.loading = false;
    entry.bytes = bytes;
    if (!made) {
      entry.error = parts.error().message;
      if (all.started) log_error("{} cannot be loaded: {}", entry.name(), entry.error);
      ++entry.failed_loads;
      entry.retry_us = now_us() + us_of(options.retry_after_s);
      return refuse_waiting(entry, not_loaded(entry), after);
    }
    if (all.started) log_info("{} is loaded after {:.2f} s", entry.name(), seconds_since(start));
    ++entry.loads;
    entry.card.output = made->options().output;
    entry.card.max_model_len = made->options().max_model_len;
    entry.card.root = made->options().model_root;
    entry.card.bytes = bytes;
    entry.model = std::move(made);
    if (all.accepting && all.sleep_level == 0) return hand_over(entry, after);
    entry.wake_again = true;
    let_go(entry, after);
  });
}

ModelKeeper::ModelKeeper(const KeeperOptions& options, std::vector<ModelCard> cards, ModelHost& host)
    : shelf_(std::make_shared<Shelf>(options, host)) {
  shelf_->books.with([&](Books& books) {
    for (ModelCard& card : cards) books.entries.emplace_back(std::move(card), options.block_tokens);
  });
  shelf_->keeper = std::thread([shelf = shelf_.get()] { shelf->keep_time(); });
  shelf_->loader = std::thread([shelf = shelf_.get()] { shelf->run_jobs(); });
}

ModelKeeper::~ModelKeeper() { stop(); }

Status ModelKeeper::start() {
  for (const ModelState& state : states()) {
    if (!state.card.preload) continue;
    std::promise<bool> loaded;
    want(state.card.names.front(), kNever, [&](const Checked<ModelRef>& model) { loaded.set_value(model.ok()); });
    if (loaded.get_future().get()) continue;
    return shelf_->books.with([&](Books& books) { return Error{find_in(books, state.card.names.front())->error}; });
  }
  shelf_->books.with([](Books& books) { books.started = true; });
  return {};
}

void ModelKeeper::stop_accepting() {
  shelf_->update([](Books& all, After& after) {
    all.accepting = false;
    for (Entry& entry : all.entries) {
      refuse_waiting(entry, unavailable("The server is shutting down."), after);
      if (entry.model) after.push_back([model = entry.model] { model->engine->stop_accepting(); });
    }
  });
}

void ModelKeeper::stop() {
  if (!shelf_->keeper.joinable()) return;
  stop_accepting();
  shelf_->notes.close();
  shelf_->keeper.join();
  std::vector<ModelRef> rest;
  shelf_->books.with([&](Books& all) {
    for (Entry& entry : all.entries) {
      if (ModelRef model = entry.model ? std::move(entry.model) : entry.leaving.lock())
        rest.push_back(std::move(model));
    }
  });
  for (ModelRef& model : rest) {
    model->close();
    shelf_->engines.fetch_sub(1);
    model = nullptr;
  }
  shelf_->ending = true;
  shelf_->jobs.try_send(Job{});
  shelf_->loader.join();
}

ModelRef ModelKeeper::loaded(std::string_view name) {
  return shelf_->books.with([&](Books& books) {
    Entry* entry = find_in(books, name);
    if (entry == nullptr || !entry->model) return ModelRef();
    entry->used_us = now_us();
    return entry->model;
  });
}

void ModelKeeper::want(std::string_view name, int64_t deadline_us, Use use) {
  shelf_->update([&](Books& all, After& after) {
    Entry* entry = find_in(all, name);
    if (entry != nullptr && entry->model && all.accepting) {
      entry->used_us = now_us();
      return after.push_back([use = std::move(use), model = entry->model]() mutable { use(std::move(model)); });
    }
    if (std::optional<ApiError> refusal = shelf_->refuses(all, entry, name)) {
      count(entry == nullptr ? all.entries.front() : *entry, *refusal);
      return after.push_back([use = std::move(use), error = std::move(*refusal)] { use(error); });
    }
    const int64_t now = now_us();
    const int64_t own_us = deadline_us == kNever ? kNever : now + us_of(shelf_->options.load_timeout_s);
    const bool sooner = deadline_us != 0 && deadline_us < own_us;
    entry->waiting.push_back({now, sooner ? deadline_us : own_us, sooner, std::move(use)});
    shelf_->notes.try_send(0);
  });
}

bool ModelKeeper::set_keep_alive(std::string_view name, double seconds) {
  return shelf_->books.with([&](Books& books) {
    Entry* entry = find_in(books, name);
    if (entry == nullptr) return false;
    entry->keep_alive_s = seconds;
    shelf_->notes.try_send(0);
    return true;
  });
}

std::vector<ModelState> ModelKeeper::states() const {
  std::vector<ModelState> states;
  // What is leaving is held too, until its figures have been read.
  std::vector<ModelRef> engines;
  shelf_->books.with([&](Books& books) {
    for (Entry& entry : books.entries) {
      ModelState& state = states.emplace_back();
      state.card = entry.card;
      state.metrics = &entry.metrics;
      state.model = entry.model;
      state.stats = entry.past;
      state.bytes = entry.bytes;
      state.loads = entry.loads;
      state.failed_loads = entry.failed_loads;
      state.unloads = entry.unloads;
      state.waiting = entry.waiting.size();
      const double keep_s = shelf_->keep_alive_s(entry);
      if (entry.model && !entry.card.pinned && keep_s >= 0)
        state.expires_in_s = std::max(0.0, keep_s - seconds_since(entry.used_us));
      engines.push_back(entry.model ? entry.model : entry.leaving.lock());
    }
  });
  for (size_t i = 0; i < states.size(); ++i) {
    if (!engines[i]) continue;
    EngineStats stats = engines[i]->engine->stats();
    add_counters(stats, states[i].stats);
    states[i].stats = stats;
  }
  return states;
}

Metrics& ModelKeeper::first_metrics() const {
  return *shelf_->books.with([](Books& books) { return &books.entries.front().metrics; });
}

int64_t ModelKeeper::memory_bytes() const { return shelf_->options.memory_bytes; }

void ModelKeeper::sleep(int level, std::function<void()> done) {
  shelf_->update([&](Books& all, After& after) {
    all.sleep_level = level;
    all.sleepers.push_back(std::move(done));
    for (Entry& entry : all.entries) {
      refuse_waiting(entry, asleep(), after);
      if (!entry.model) continue;
      entry.wake_again = true;
      let_go(entry, after);
    }
  });
  shelf_->notes.try_send(0);
}

void ModelKeeper::wake_up(std::function<void()> done) {
  shelf_->update([&](Books& all, After& after) {
    all.sleep_level = 0;
    // Runs `done` when the last model that was to come back holds it no more.
    const std::shared_ptr<void> last(nullptr, [done = std::move(done)](void*) { done(); });
    for (Entry& entry : all.entries) {
      if (!std::exchange(entry.wake_again, false)) continue;
      const int64_t now = now_us();
      entry.waiting.push_back(
          {now, now + us_of(shelf_->options.load_timeout_s), false, [last](const Checked<ModelRef>&) {}});
    }
    after.push_back([last] {});
  });
  shelf_->notes.try_send(0);
}

int ModelKeeper::sleep_level() const {
  return shelf_->books.with([](Books& books) { return books.sleep_level; });
}

}  // namespace quern
