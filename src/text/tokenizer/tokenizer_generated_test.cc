// Seeded strings against `tokenizers` and `sentencepiece`: tools/make_tokenizer_cases.py makes the hashes of what they
// say. QUERN_TEXT_TESTDATA names another folder with the tool's output, of more strings.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "text/detokenizer.h"
#include "text/pattern/unicode.h"
#include "text/tokenizer.h"

namespace quern {
namespace {

std::string folder() {
  const char* other = std::getenv("QUERN_TEXT_TESTDATA");  // NOLINT(concurrency-mt-unsafe)
  return other != nullptr ? other : QUERN_SOURCE_DIR "/src/text/testdata";
}

Json read_json(const std::string& name) {
  const auto text = read_file(folder() + "/" + name);
  EXPECT_TRUE(text.ok()) << name;
  auto json = Json::parse(text.ok() ? *text : "null");
  EXPECT_TRUE(json.ok()) << name;
  return json.ok() ? *json : Json();
}

bool is_model(const std::string& name) { return name.starts_with("sp_"); }

std::shared_ptr<const Tokenizer> load(const std::string& name) {
  const auto text = read_file(folder() + "/" + name + (is_model(name) ? ".model" : ".tokenizer.json"));
  if (!text.ok()) return nullptr;
  auto made = is_model(name) ? Tokenizer::from_sentence_piece(*text, Json()) : Tokenizer::from_json(*text, Json());
  EXPECT_TRUE(made.ok()) << name << ": " << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : nullptr;
}

/// The text that a generated string stands for: U+F700 + byte is a byte that is no UTF-8.
std::string bytes_of(const std::string& spelled) {
  std::string bytes;
  for (size_t at = 0; at < spelled.size();) {
    const Character character = decode_utf8(spelled.data() + at);
    const bool raw = character.code >= 0xF700 && character.code <= 0xF7FF;
    raw ? bytes += static_cast<char>(character.code - 0xF700) : bytes += spelled.substr(at, character.length);
    at += character.length;
  }
  return bytes;
}

std::string fnv1a(const std::string& text) {
  uint64_t value = 0xCBF29CE484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

/// "ids|special|plain|decoded", as the tool has it. SentencePiece knows no special tokens in texts.
std::string summary(const Tokenizer& tokenizer, const std::string& text, bool parse_special) {
  const auto special = *tokenizer.encode(text, {.add_special = true, .parse_special = parse_special});
  return fmt::format("{}|{}|{}|{}",
                     fmt::join(*tokenizer.encode(text, {.add_special = false, .parse_special = parse_special}), ","),
                     fmt::join(special, ","), fmt::join(*tokenizer.encode(text, {.add_special = false}), ","),
                     tokenizer.decode(special, true));
}

class Generated : public testing::TestWithParam<const char*> {};

TEST_P(Generated, AgreesWithTheReference) {
  const std::string name = GetParam();
  const auto tokenizer = load(name);
  const Json texts = read_json("generated_texts.json");
  const Json hashes = read_json("generated_hashes.json");
  ASSERT_TRUE(tokenizer && hashes.has(name));
  const Json::Array& expected = hashes.find(name)->items();
  ASSERT_EQ(expected.size(), texts.items().size());

  int wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].is_null()) continue;  // Unicode versions differ
    const std::string text = bytes_of(texts.items()[i].as_string());
    const std::string found = summary(*tokenizer, text, !is_model(name));
    if (fnv1a(found) == expected[i].as_string()) continue;
    if (++wrong <= 10)
      ADD_FAILURE() << name << " text " << i << ": " << Json(repair_utf8(text)).dump() << "\n" << found;
  }
  EXPECT_EQ(wrong, 0) << "of " << expected.size();
}

/// SplitMix64, as tools/tokenizer_strings.py has it.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}

  size_t below(size_t count) {
    state_ += 0x9E3779B97F4A7C15;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (z ^ z >> 31) % count;
  }

 private:
  uint64_t state_;
};

/// A text's characters, as it is spelled.
std::vector<std::string> characters_of(const std::string& spelled) {
  std::vector<std::string> all;
  for (size_t at = 0; at < spelled.size(); at += all.back().size()) {
    all.push_back(spelled.substr(at, static_cast<size_t>(decode_utf8(spelled.data() + at).length)));
  }
  return all;
}

/// Text `index` of those that are made of parts of others.
std::string mixed(const std::vector<std::vector<std::string>>& texts, size_t index) {
  Numbers numbers(index);
  std::string out;
  for (size_t parts = 1 + numbers.below(4); parts > 0; --parts) {
    const std::vector<std::string>& text = texts[numbers.below(texts.size())];
    const size_t first = numbers.below(text.size());
    const size_t count = 1 + numbers.below(40);
    const bool is_run = numbers.below(8) == 0;
    for (size_t i = 0; i < count && (is_run || first + i < text.size()); ++i) out += text[is_run ? first : first + i];
  }
  return bytes_of(out);
}

// Ten thousand for each kind; the tool's hashes are of 250 each.
TEST_P(Generated, AgreesWithTheReferenceOnTextsMixedOfThem) {
  constexpr size_t together = 250;
  const std::string name = GetParam();
  const auto tokenizer = load(name);
  const Json hashes = read_json("mixed_hashes.json");
  ASSERT_TRUE(tokenizer && hashes.has(name));
  const Json seeded = read_json("generated_texts.json");
  std::vector<std::vector<std::string>> texts;
  for (const Json& text : seeded.items()) texts.push_back(characters_of(text.as_string()));
  const Json::Array& expected = hashes.find(name)->items();
  ASSERT_EQ(expected.size(), 40U);

  for (size_t i = 0; i < expected.size(); ++i) {
    std::vector<std::string> found;
    for (size_t k = 0; k < together; ++k) {
      const std::string text = mixed(texts, i * together + k);
      // The scripts that `tokenizers` knows are those of Unicode 9.
      const auto wide = [](char c) { return static_cast<unsigned char>(c) >= 0xF0; };
      const bool comparable = name != "scripts" || std::ranges::none_of(text, wide);
      found.push_back(comparable ? fnv1a(summary(*tokenizer, text, !is_model(name))) : "");
    }
    EXPECT_EQ(fnv1a(fmt::format("{}", fmt::join(found, ","))), expected[i].as_string())
        << "of the texts from " << i * together << " on";
  }
}

TEST_P(Generated, StreamsTheTextThatDecodeGives) {
  const auto tokenizer = load(GetParam());
  const Json texts = read_json("generated_texts.json");
  ASSERT_TRUE(tokenizer);

  for (size_t i = 0; i < std::min<size_t>(texts.items().size(), 300); ++i) {
    const auto ids = *tokenizer->encode(bytes_of(texts.items()[i].as_string()), {.parse_special = true});
    Detokenizer detokenizer(tokenizer, true);
    std::string streamed;
    for (const int32_t id : ids) streamed += detokenizer.add(id);
    streamed += detokenizer.finish();
    EXPECT_EQ(streamed, tokenizer->decode(ids, true)) << GetParam() << " text " << i;
  }
}

// S14
TEST_P(Generated, C13TakesAMegabyteOfOneCharacter) {
  const auto tokenizer = load(GetParam());
  ASSERT_TRUE(tokenizer);
#ifdef NDEBUG
  constexpr double most_seconds = 1.0;
#else
  constexpr double most_seconds = 10.0;
#endif
  for (const std::string& letter : {std::string("a"), std::string(" "), std::string("7"), std::string("\u0301"),
                                    std::string("\u4E00"), std::string("\xFF"), std::string("a ")}) {
    std::string text;
    while (text.size() < (1 << 20)) text += letter;
    const std::clock_t start = std::clock();

    const auto ids = tokenizer->encode(text, {});

    ASSERT_TRUE(ids.ok()) << GetParam() << ": " << ids.error().message;
    // Processor time, since others may use the machine.
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, most_seconds) << GetParam() << " " << letter;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Generated,
                         testing::Values("llama3", "qwen2", "digits_gpt2", "falcon", "llama2", "llama2_metaspace",
                                         "gemma", "o200k", "deepseek_v3", "bert", "bert_cased", "xlm_roberta",
                                         "unigram_bytes", "word_end", "scripts", "sp_unigram", "sp_bpe", "sp_unknown"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quern
