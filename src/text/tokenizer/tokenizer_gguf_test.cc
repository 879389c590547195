#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>

#include "base/file.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer/gguf_vocabulary_file.h"

namespace quern {
namespace {

/// A file of llama.cpp's vocabularies.
std::string read_vocabulary(const std::string& name) {
  auto file = read_file(QUERN_SOURCE_DIR "/build/vocabularies/ggml-vocab-" + name);
  EXPECT_TRUE(file.ok()) << "tools/fetch_vocabularies brings " << name;
  return file.ok() ? std::move(file).value() : "";
}

std::shared_ptr<const Tokenizer> load(const std::string& name) {
  const std::string file = read_vocabulary(name + ".gguf");
  if (file.empty()) return nullptr;
  auto tokenizer = Tokenizer::from_gguf(GgufVocabularyFile(file).read());
  EXPECT_TRUE(tokenizer.ok()) << name << ": " << (tokenizer.ok() ? "" : tokenizer.error().message);
  return tokenizer.ok() ? *tokenizer : nullptr;
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at = text.find(separator); at != std::string::npos; at = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<int32_t> numbers(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<int32_t>(in), {}};
}

/// A vocabulary of the bytes "a" to "d" and what their merges make.
GgufVocabulary small_gpt2() {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  vocabulary.tokens = {"a", "b", "c", "d", "ab", "cd", "abcd", "<end>"};
  vocabulary.types = {1, 1, 1, 1, 1, 1, 1, 3};
  vocabulary.merges = {"a b", "c d", "ab cd"};
  return vocabulary;
}

GgufVocabulary small_llama() {
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581a", "<0x0A>"};
  vocabulary.scores = {0, 0, 0, -5, -6, -7, -2, -1, 0};
  vocabulary.types = {2, 3, 3, 1, 1, 1, 1, 1, 6};
  return vocabulary;
}

std::string refusal(GgufVocabulary vocabulary) {
  const auto tokenizer = Tokenizer::from_gguf(std::move(vocabulary));
  return tokenizer.ok() ? "" : tokenizer.error().message;
}

class GgufVocabularies : public testing::TestWithParam<const char*> {};

TEST_P(GgufVocabularies, EncodesLikeTheReference) {
  const std::string name = GetParam();
  const auto tokenizer = load(name);
  ASSERT_TRUE(tokenizer);
  const std::vector<std::string> inputs = split(read_vocabulary(name + ".gguf.inp"), "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = split(read_vocabulary(name + ".gguf.out"), "\n");

  ASSERT_GE(lines.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto encoded = tokenizer->encode(inputs[i], {.add_special = false});
    ASSERT_TRUE(encoded.ok());
    EXPECT_EQ(*encoded, numbers(lines[i])) << name << " text " << i << ": " << inputs[i];
  }
}

TEST_P(GgufVocabularies, DecodesWhatItEncodes) {
  const std::string name = GetParam();
  const auto tokenizer = load(name);
  ASSERT_TRUE(tokenizer);
  const bool loses = name == "bert-bge";  // WordPiece: case, spaces, accents; what is left gives the same tokens
  int again = 0;
  for (const std::string& text : split(read_vocabulary(name + ".gguf.inp"), "\n__ggml_vocab_test__\n")) {
    const auto ids = tokenizer->encode(text, {.add_special = !loses});
    ASSERT_TRUE(ids.ok());
    const std::string decoded = tokenizer->decode(*ids, !loses);
    if (!loses) {
      EXPECT_EQ(decoded, text) << name;
    } else if (decoded.find("[UNK]") == std::string::npos) {
      EXPECT_EQ(*tokenizer->encode(decoded, {.add_special = false}), *ids) << text;
      ++again;
    }
  }
  EXPECT_TRUE(!loses || again > 30);
}

INSTANTIATE_TEST_SUITE_P(Shared, GgufVocabularies,
                         testing::Values("gpt-2", "mpt", "starcoder", "refact", "falcon", "deepseek-llm",
                                         "deepseek-coder", "llama-spm", "phi-3", "bert-bge", "command-r", "llama-bpe",
                                         "qwen2", "qwen35", "gemma-4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(GgufTokenizer, KnowsTheKindsThatTheSharedFilesName) {
  for (const char* name : {"baichuan", "gpt-neox"}) {
    EXPECT_TRUE(load(name)) << name;
  }
}

TEST(GgufTokenizer, MergesInOrderOfTheList) {
  const auto tokenizer = Tokenizer::from_gguf(small_gpt2());
  ASSERT_TRUE(tokenizer.ok());

  EXPECT_EQ(*(*tokenizer)->encode("abcdab", {}), (std::vector<int32_t>{6, 4}));
  EXPECT_EQ(*(*tokenizer)->encode("<end>", {}), (std::vector<int32_t>{3}));
  EXPECT_EQ(*(*tokenizer)->encode("<end>", {.parse_special = true}), (std::vector<int32_t>{7}));
}

TEST(GgufTokenizer, MergesTheBestScoreFirst) {
  const auto tokenizer = Tokenizer::from_gguf(small_llama());
  ASSERT_TRUE(tokenizer.ok());

  EXPECT_EQ(*(*tokenizer)->encode("ab", {}), (std::vector<int32_t>{1, 7, 5}));
  EXPECT_EQ(*(*tokenizer)->encode("\nab", {.add_special = false}), (std::vector<int32_t>{3, 8, 6}));
  EXPECT_EQ(*(*tokenizer)->encode("xx", {.add_special = false}), (std::vector<int32_t>{3, 0, 0}));
}

// S5
TEST(GgufTokenizer, RefusesFilesThatContradictThemselves) {
  EXPECT_EQ(refusal(small_gpt2()), "");
  EXPECT_EQ(refusal(small_llama()), "");
  const auto gpt2 = [](auto change) {
    GgufVocabulary vocabulary = small_gpt2();
    change(vocabulary);
    return refusal(std::move(vocabulary));
  };
  EXPECT_NE(gpt2([](auto& v) { v.model = "plamo2"; }).find("plamo2"), std::string::npos);
  EXPECT_NE(gpt2([](auto& v) { v.pre = "no-such"; }).find("no-such"), std::string::npos);
  EXPECT_NE(gpt2([](auto& v) { v.pre = "mpt olmo"; }).find("mpt olmo"), std::string::npos);
  EXPECT_NE(gpt2([](auto& v) { v.tokens.clear(); }), "");
  EXPECT_NE(gpt2([](auto& v) { v.types.pop_back(); }), "");
  EXPECT_NE(gpt2([](auto& v) { v.merges.clear(); }), "");
  EXPECT_NE(gpt2([](auto& v) { v.merges.push_back("ab"); }), "");
  EXPECT_NE(gpt2([](auto& v) { v.merges.push_back("a z"); }).find("\"z\""), std::string::npos);
  EXPECT_NE(gpt2([](auto& v) { v.merges.push_back("a c"); }).find("\"ac\""), std::string::npos);
  EXPECT_NE(gpt2([](auto& v) { v.merges.push_back("a \xFF"); }), "");
  EXPECT_NE(gpt2([](auto& v) { v.bos = 8; }), "");
  EXPECT_NE(gpt2([](auto& v) { v.eos = -1; }), "");
  EXPECT_NE(gpt2([](auto& v) { v.tokens[7] = std::string(600, 'x'); }), "");
  GgufVocabulary llama = small_llama();
  llama.scores.pop_back();
  EXPECT_NE(refusal(llama).find("scores"), std::string::npos);
}

/// Unigram: pieces of a text by their scores.
GgufVocabulary small_t5() {
  GgufVocabulary vocabulary;
  vocabulary.model = "t5";
  vocabulary.tokens = {"<pad>", "</s>", "<unk>", "\u2581", "a", "b", "ab", "\u2581a", "<keep>"};
  vocabulary.scores = {0, 0, 0, -2, -3, -3, -4, -4, 0};
  vocabulary.types = {3, 3, 2, 1, 1, 1, 1, 1, 4};
  return vocabulary;
}

/// WordPiece: U+2581 starts words.
GgufVocabulary small_bert() {
  GgufVocabulary vocabulary;
  vocabulary.model = "bert";
  vocabulary.tokens = {"[UNK]", "[CLS]", "[SEP]", "\u2581un", "able", "\u2581able", "\u2581!", "aff"};
  vocabulary.types = {3, 3, 3, 1, 1, 1, 1, 1};
  vocabulary.unknown = 0;
  vocabulary.cls = 1;
  vocabulary.separator = 2;
  return vocabulary;
}

TEST(GgufTokenizer, SplitsByTheSumOfScores) {
  const auto tokenizer = Tokenizer::from_gguf(small_t5());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;

  EXPECT_EQ(*(*tokenizer)->encode("ab", {}), (std::vector<int32_t>{3, 6, 1}));
  EXPECT_EQ(*(*tokenizer)->encode("abxy<keep>b", {.add_special = false}), (std::vector<int32_t>{3, 6, 2, 8, 3, 5}));
  EXPECT_EQ((*tokenizer)->decode(std::vector<int32_t>{7, 5, 3, 6, 1}, true), "ab ab");
}

TEST(GgufTokenizer, TakesTheLongestPartsOfWords) {
  const auto tokenizer = Tokenizer::from_gguf(small_bert());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;

  EXPECT_EQ(*(*tokenizer)->encode("Unaffable \u00C4BLE!", {}), (std::vector<int32_t>{1, 3, 7, 4, 5, 6, 2}));
  EXPECT_EQ(*(*tokenizer)->encode("unaffected x", {.add_special = false}), (std::vector<int32_t>{0, 0}));
  EXPECT_EQ((*tokenizer)->decode(std::vector<int32_t>{1, 3, 7, 4, 5, 6, 2}, true), "unaffable able!");
}

TEST(GgufTokenizer, RefusesCharsmapsAndScoresThatLie) {
  const auto t5 = [](auto change) {
    GgufVocabulary vocabulary = small_t5();
    change(vocabulary);
    return refusal(std::move(vocabulary));
  };
  EXPECT_EQ(t5([](auto&) {}), "");
  EXPECT_NE(t5([](auto& v) { v.charsmap = "ab"; }).find("charsmap"), std::string::npos);
  EXPECT_NE(t5([](auto& v) { v.charsmap = std::string("\x10\0\0\0ab", 6); }).find("charsmap"), std::string::npos);
  EXPECT_NE(t5([](auto& v) { v.charsmap = std::string("\0\0\0\0\xFF\0", 6); }).find("UTF-8"), std::string::npos);
  EXPECT_NE(t5([](auto& v) { v.scores[4] = std::numeric_limits<float>::quiet_NaN(); }).find("nan"), std::string::npos);
  EXPECT_NE(t5([](auto& v) { v.scores.clear(); }).find("scores"), std::string::npos);
  EXPECT_NE(t5([](auto& v) { v.unknown = 9; }).find("unknown"), std::string::npos);
  GgufVocabulary wild = small_t5();
  wild.charsmap = std::string("\x08\0\0\0", 4) + std::string(8, '\xFF') + "x";  // every index leads out
  const auto tokenizer = Tokenizer::from_gguf(wild);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(*(*tokenizer)->encode("ab", {}), (std::vector<int32_t>{3, 6, 1}));
}

TEST(GgufTokenizer, MergesByNumberWhereKimiHasNoMerges) {
  GgufVocabulary vocabulary = small_gpt2();
  vocabulary.pre = "kimi-k2";
  vocabulary.merges.clear();
  const auto tokenizer = Tokenizer::from_gguf(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;

  EXPECT_EQ(*(*tokenizer)->encode("abcdab", {}), (std::vector<int32_t>{6, 4}));
}

TEST(GgufTokenizer, LivesWithOddTokens) {
  GgufVocabulary vocabulary = small_gpt2();
  vocabulary.tokens[2] = "\xFF\xFE";
  vocabulary.tokens[3] = "a";
  vocabulary.merges = {"a b"};
  vocabulary.types = {1, 1, 1, 1, 1, 1, 1, 99};
  const auto tokenizer = Tokenizer::from_gguf(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;

  EXPECT_EQ((*tokenizer)->token_text(2), "\uFFFD\uFFFD");
  EXPECT_EQ((*tokenizer)->token_bytes(-1), "");
  EXPECT_EQ((*tokenizer)->token_bytes(8), "");
  EXPECT_EQ((*tokenizer)->decode(std::vector<int32_t>{-5, 1 << 30, 1}, false), "b");
  EXPECT_EQ(*(*tokenizer)->encode("a", {}), (std::vector<int32_t>{3}));  // of equal tokens the last one counts
  GgufVocabulary scores = small_llama();
  for (float& score : scores.scores) score = std::numeric_limits<float>::quiet_NaN();
  const auto with_nan = Tokenizer::from_gguf(scores);
  ASSERT_TRUE(with_nan.ok());
  EXPECT_EQ((*with_nan)->decode(*(*with_nan)->encode("ab ab", {}), true), "ab ab");
}

TEST(GgufTokenizer, TokensForFillingInAreFoundInTrustedTextOnly) {
  GgufVocabulary vocabulary = small_gpt2();
  vocabulary.tokens.insert(vocabulary.tokens.end(), {"<before>", "<after>", "<here>"});
  vocabulary.types.insert(vocabulary.types.end(), {1, 1, 1});
  const auto without = Tokenizer::from_gguf(vocabulary);
  vocabulary.fim_prefix = 8;
  vocabulary.fim_suffix = 9;
  vocabulary.fim_middle = 10;
  const auto tokenizer = Tokenizer::from_gguf(vocabulary);
  ASSERT_TRUE(without.ok() && tokenizer.ok());

  EXPECT_FALSE((*without)->fill_in_tokens());
  EXPECT_EQ((*tokenizer)->fill_in_tokens()->middle, 10);
  const std::vector<TextPiece> pieces = {{"<before>", true}, {"ab<here>"}, {"<after>", true}, {"<here>", true}};
  const auto ids = (*tokenizer)->encode_pieces(pieces, false);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->front(), 8);
  EXPECT_EQ(ids->back(), 10);
  EXPECT_EQ(std::ranges::count(*ids, 10), 1);
  vocabulary.fim_suffix = 11;
  EXPECT_NE(refusal(vocabulary).find("fim_suf"), std::string::npos);
  vocabulary.fim_suffix.reset();
  EXPECT_FALSE((*Tokenizer::from_gguf(vocabulary))->fill_in_tokens());
}

TEST(GgufTokenizer, EndsAnswersAtKnownSpellings) {
  GgufVocabulary vocabulary = small_gpt2();
  vocabulary.tokens.insert(vocabulary.tokens.end(), {"<|im_end|>", "<|end|>", "</s>"});
  vocabulary.types.insert(vocabulary.types.end(), {3, 4, 4});
  vocabulary.eos = 7;
  const auto tokenizer = Tokenizer::from_gguf(vocabulary);
  ASSERT_TRUE(tokenizer.ok());

  const auto ends = (*tokenizer)->end_of_generation();
  EXPECT_EQ(std::vector<int32_t>(ends.begin(), ends.end()), (std::vector<int32_t>{7, 8, 9}));
}

// S14
TEST(GgufTokenizer, TakesAMegabyteOfOneLetter) {
  const auto gpt2 = load("gpt-2");
  const auto llama = load("llama-spm");
  ASSERT_TRUE(gpt2 && llama);

  for (const auto& tokenizer : {gpt2, llama}) {
    for (const std::string& letter : {std::string("a"), std::string(" "), std::string("ab"), std::string("\u0301")}) {
      std::string text;
      while (text.size() < (1 << 20)) text += letter;
      const auto ids = tokenizer->encode(text, {.add_special = false});
      ASSERT_TRUE(ids.ok()) << ids.error().message;
      EXPECT_EQ(tokenizer->decode(*ids, true), text);
    }
  }
}

}  // namespace
}  // namespace quern
