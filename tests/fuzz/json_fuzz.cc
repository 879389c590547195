// JSON: any bytes are refused or become a value that its own text gives back.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using quern::Json;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto strict = Json::parse(text, 64, Json::Repeated::refused);
  const auto json = Json::parse(text);
  if (!json.ok()) {
    CHECK(!strict.ok());
    CHECK(!json.error().message.empty());
    return 0;
  }
  const std::string dumped = json->dump();
  const auto again = Json::parse(dumped, 64, Json::Repeated::refused);
  CHECK(again.ok());
  CHECK(again->dump() == dumped);
  CHECK(!strict.ok() || *strict == *json);
  return 0;
}
