// Constraints: any bytes as a schema, a regular expression, a grammar or a structural tag are refused or compiled
// within their bounds, and what is compiled allows tokens that it then accepts.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "server/scripted_service.h"
#include "text/constraint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using quern::ByteTokenizer;
  using quern::ConstraintSpec;
  constexpr int32_t kVocab = 259;
  static quern::ConstraintCompiler compiler(
      std::make_shared<ByteTokenizer>(), kVocab, {ByteTokenizer::kEos},
      {.text_bytes = 4096, .compile_bytes = int64_t{256} << 20, .compile_cpu_s = 2, .cache_bytes = int64_t{8} << 20});
  if (size < 2) return 0;
  constexpr ConstraintSpec::Kind kinds[] = {ConstraintSpec::Kind::json_schema, ConstraintSpec::Kind::regex,
                                            ConstraintSpec::Kind::grammar, ConstraintSpec::Kind::structural_tag};
  ConstraintSpec spec{.kind = kinds[bytes[0] % 4]};
  spec.text.assign(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const auto compiled = compiler.compile(spec);
  if (!compiled.ok()) {
    CHECK(!compiled.error().message.empty());
    return 0;
  }
  const auto matcher = compiled.value()->start();
  std::vector<uint32_t> words;
  for (size_t step = 0; step < 24 && matcher->fill(words); ++step) {
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < kVocab; ++id) {
      if ((words[static_cast<size_t>(id) / 32] >> (id % 32) & 1U) != 0) allowed.push_back(id);
    }
    if (allowed.empty()) break;
    const int32_t token = allowed[(bytes[step % size] + step) % allowed.size()];
    CHECK(matcher->accept(token));
    if (token == ByteTokenizer::kEos) break;
  }
  return 0;
}
