#include "server/models/model_metrics.h"

#include <vector>

namespace quern {
namespace {

void write_state(MetricsPage& page, const ModelState& state) {
  page.gauge("quern_model_loaded", state.model ? 1 : 0, "1 when the model is loaded.");
  page.gauge("quern_model_memory_bytes", state.bytes, "Memory that the model holds.");
  page.gauge("quern_model_requests_waiting", state.waiting, "Requests that wait for the model to be loaded.");
  page.counter("quern_model_loads_total", state.loads, "Times that the model was loaded.");
  page.counter("quern_model_load_failures_total", state.failed_loads, "Times that it could not be.");
  page.counter("quern_model_unloads_total", state.unloads, "Times that it was unloaded.");
}

}  // namespace

void write_models(MetricsPage& page, const ModelKeeper& keeper) {
  const int sleep_level = keeper.sleep_level();
  for (ModelState& state : keeper.states()) {
    const double stalled_s = state.model ? state.model->stalled_s(state.stats) : 0;
    state.stats.waiting += static_cast<int32_t>(state.waiting);
    const bool more = state.model && state.model->options().gauges;
    state.metrics->write(page, state.stats, stalled_s, more ? state.model->options().gauges() : std::vector<Gauge>{},
                         sleep_level);
    write_state(page, state);
  }
  page.family("quern_models_memory_bytes", "gauge", "Memory that all models may hold together; 0: no limit.");
  page.bare("quern_models_memory_bytes", "", keeper.memory_bytes());
}

}  // namespace quern
