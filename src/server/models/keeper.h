// ModelKeeper: the models of a server by name: loads one when a request wants it and unloads those that were not used
// for longest, within one budget of memory. Whoever holds a model keeps it; a model that is let go is destroyed when
// its last request has ended. Any thread; it has one for what time brings, and one that loads and destroys.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/models/host.h"
#include "server/models/served_model.h"
#include "server/openai/errors.h"

namespace quern {

using ModelRef = std::shared_ptr<ServedModel>;

struct KeeperOptions {
  int64_t memory_bytes = 0;     // of all models together; 0: no limit
  double keep_alive_s = -1;     // without a request; negative: until another model needs the memory
  double load_timeout_s = 300;  // how long a request waits for its model
  size_t max_waiting = 1024;    // requests that wait for models
  double retry_after_s = 5;     // before a model that could not be loaded is tried again
  int32_t block_tokens = 16;    // for its metrics
};

/// A model at this moment.
struct ModelState {
  ModelCard card;
  Metrics* metrics = nullptr;  // lives as long as the keeper
  ModelRef model;              // if it is loaded
  EngineStats stats;           // since the start, whatever was unloaded meanwhile
  int64_t bytes = 0;           // of memory that it holds
  int64_t loads = 0;
  int64_t failed_loads = 0;
  int64_t unloads = 0;
  size_t waiting = 0;                  // requests that wait for it
  std::optional<double> expires_in_s;  // until it is unloaded; nothing: it stays
};

class ModelKeeper {
 public:
  using Use = std::function<void(Checked<ModelRef>)>;

  /// At least one card; no name twice. `host` outlives the keeper.
  ModelKeeper(const KeeperOptions& options, std::vector<ModelCard> cards, ModelHost& host);
  ~ModelKeeper();
  ModelKeeper(const ModelKeeper&) = delete;
  ModelKeeper& operator=(const ModelKeeper&) = delete;

  /// Loads what is to be there at start; the error says why it could not be.
  Status start();
  /// Whoever waits for a model is refused, and what is loaded gets no more requests.
  void stop_accepting();
  /// Ends all requests. Nobody asks for a model any more.
  void stop();

  /// The model of that name ("" is the first one), if it is loaded.
  ModelRef loaded(std::string_view name);
  /// `use` gets the model, or why there is none: at once when it is loaded, else from another thread; it must not
  /// block. `deadline_us`: how long it may wait at most, 0: the keeper's own limit.
  void want(std::string_view name, int64_t deadline_us, Use use);
  /// How long the model stays without a request, in place of the keeper's own time and until it goes: 0 unloads it when
  /// the requests that it has are done, negative keeps it. False when there is no such model.
  bool set_keep_alive(std::string_view name, double seconds);

  std::vector<ModelState> states() const;
  Metrics& first_metrics() const;
  int64_t memory_bytes() const;

  /// Unloads all models and refuses requests; `done` is called when the memory is free. Level 1 or 2.
  void sleep(int level, std::function<void()> done);
  /// Loads again what sleep() unloaded; `done` is called when it is there.
  void wake_up(std::function<void()> done);
  /// 0: awake.
  int sleep_level() const;

 private:
  struct Shelf;
  class Loader;
  std::shared_ptr<Shelf> shelf_;  // shared with the models that are out
};

}  // namespace quern
