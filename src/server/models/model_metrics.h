// The figures of models that come and go. Any thread.
#pragma once

#include "server/metrics/page.h"
#include "server/models/keeper.h"

namespace quern {

/// Every series of every model, loaded or not.
void write_models(MetricsPage& page, const ModelKeeper& keeper);

}  // namespace quern
