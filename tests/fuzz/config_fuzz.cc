// config.json: any JSON is refused with words or describes a model whose numbers can be said and added up.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/fp8_weights.h"
#include "model/families/family.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = quern::Json::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!config.ok() || !config->is_object()) return 0;
  const quern::Status known = quern::check_quantization(*config, "config.json");
  CHECK(known.ok() || !known.error().message.empty());
  const auto spec = quern::make_spec(*config);
  if (!spec.ok()) {
    CHECK(!spec.error().message.empty());
    return 0;
  }
  CHECK(!quern::describe(*spec).empty());
  if (quern::is_causal(*spec)) quern::kv_layout(*spec, 2);
  return 0;
}
