// The JSON that Ollama shows of a model. Values.
#pragma once

#include <string>
#include <string_view>

#include "server/ollama/models.h"

namespace quern {

/// An item of /api/tags. `started_us` stands for the time of files that have none.
Json tag_json(std::string_view name, const StoredModel& model, const std::vector<std::string>& capabilities,
              int64_t started_us);
/// An item of /api/ps.
Json running_json(const std::string& name, const ServedCard& card);
/// The answer of /api/show.
Json show_json(const std::string& name, const ModelDetails& details, const std::string& parameters, int64_t started_us);

}  // namespace quern
