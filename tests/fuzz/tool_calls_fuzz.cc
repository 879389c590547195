// Replies of a model: whatever it says, cut anywhere, every dialect reads the same, and loses nothing without calls.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "text/reply/testing.h"

namespace {

constexpr std::array<const char*, 12> kDialects = {"hermes",   "qwen3_coder", "seed_oss",    "llama3_json",
                                                   "pythonic", "mistral",     "deepseek_v3", "openai",
                                                   "glm45",    "kimi_k2",     "json",        "granite"};

quern::ReplyOptions options_of(uint8_t bits) {
  quern::ReplyOptions options;
  options.tools = {
      {"f", quern::Json::parse(R"({"properties": {"s": {"type": "string"}, "i": {"type": "integer"}}})").value()}};
  options.calls = (bits & 1U) != 0;
  options.one_call = (bits & 2U) != 0;
  options.thinking = (bits & 4U) != 0;
  options.eager = (bits & 8U) != 0;
  return options;
}

bool is_json(std::string_view text) {
  quern::JsonScanner scanner;
  std::string copy;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto verdict = scanner.add(text[i], copy);
    if (verdict != quern::JsonScanner::Verdict::more) {
      return verdict == quern::JsonScanner::Verdict::last && i + 1 == text.size();
    }
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 4) return 0;
  const char* dialect = kDialects[bytes[0] % kDialects.size()];
  const quern::ReplyOptions options = options_of(bytes[1]);
  const bool special = (bytes[1] & 16U) != 0;
  std::vector<std::string_view> markers;
  if (special) markers = quern::find_dialect(dialect).value()->markers;
  const auto format =
      quern::ReplyFormat::make(dialect, (bytes[1] & 32U) != 0 ? "qwen3" : "none", "", quern::MarkerVocabulary(markers));
  const std::string text(reinterpret_cast<const char*>(bytes) + 4, size - 4);

  const quern::ReadReply whole = quern::read_reply(*format, options, text);
  const size_t step = 1 + bytes[2] % 7;
  std::vector<size_t> cuts;
  for (size_t at = bytes[3] % 5; at < text.size(); at += step) cuts.push_back(at);
  CHECK(quern::read_reply(*format, options, text, cuts) == whole);
  if (!options.calls) CHECK(whole.calls.empty());
  if (options.one_call) CHECK(whole.calls.size() <= 1);
  if (!options.eager) {
    for (const auto& call : whole.calls) CHECK(is_json(call.arguments));
  }
  if (!format->separates_reasoning() && whole.calls.empty()) {
    std::string plain = text;
    std::erase(plain, quern::kSpecialMark);
    CHECK(whole.content == plain);
  }
  return 0;
}
