#include <gtest/gtest.h>

#include "text/detokenizer.h"
#include "text/subword/trie.h"
#include "text/tokenizer.h"
#include "text/tokenizer/charsmap.h"

namespace quern {
namespace {

std::shared_ptr<const Tokenizer> load(const std::string& file) {
  auto made = Tokenizer::from_json(file, Json());
  EXPECT_TRUE(made.ok()) << file << ": " << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : nullptr;
}

std::string refusal(const std::string& file) {
  const auto made = Tokenizer::from_json(file, Json());
  return made.ok() ? "" : made.error().message;
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  return *tokenizer.encode(text, {.add_special = false});
}

using Ids = std::vector<int32_t>;

std::string unigram(const std::string& vocab, const std::string& more = "\"unk_id\":0") {
  return R"({"model":{"type":"Unigram",)" + more + ",\"vocab\":" + vocab + "}}";
}

const std::string abcd =
    R"([["<unk>",0.0],["a",0.0],["b",0.0],["c",0.0],["d",0.0],["cd",1.0],["ab",2.0],["abc",5.0],["abcd",10.0]])";

TEST(Trie, FindsTheKeysItWasMadeOf) {
  std::vector<std::string> texts;
  for (int i = 0; i < 20'000; ++i) texts.push_back(std::to_string(i * 7919 % 100'003));
  std::vector<Trie::Key> keys{{"", 5}};
  for (size_t i = 0; i < texts.size(); ++i) keys.push_back({texts[i], static_cast<int32_t>(i)});

  const auto trie = Trie::make(std::move(keys));

  ASSERT_TRUE(trie.ok());
  for (size_t i = 0; i < texts.size(); ++i) {
    const int32_t node = trie->walk(Trie::root, texts[i]);
    ASSERT_GE(node, 0) << texts[i];
    EXPECT_EQ(trie->value(node), static_cast<int32_t>(i)) << texts[i];
  }
  EXPECT_EQ(trie->value(Trie::root), -1);
  EXPECT_LT(trie->walk(Trie::root, "x"), 0);
  EXPECT_LT(trie->walk(Trie::root, "1000031"), 0);
  EXPECT_FALSE(Trie::make({{std::string(Trie::max_key_bytes + 1, 'a'), 1}}).ok());
  EXPECT_LT(Trie().walk(Trie::root, std::string_view("\0", 1)), 0);
}

TEST(Unigram, TakesTheBestSum) {
  const auto tokenizer = load(unigram(abcd));
  ASSERT_TRUE(tokenizer);

  EXPECT_EQ(encode(*tokenizer, "abcdacdxx"), (Ids{8, 1, 5, 0}));
  EXPECT_EQ(encode(*tokenizer, "xaxxb"), (Ids{0, 1, 0, 2}));
  EXPECT_EQ(encode(*tokenizer, ""), Ids{});
}

TEST(Unigram, FallsBackToBytesOnlyIfAllAreThere) {
  const auto some =
      load(unigram(R"([["<unk>",0],["a",-1],["<0xC3>",-9],["<0xA9>",-9]])", R"("unk_id":0,"byte_fallback":true)"));
  ASSERT_TRUE(some);

  EXPECT_EQ(encode(*some, "a\u00E9a"), (Ids{1, 2, 3, 1}));
  EXPECT_EQ(encode(*some, "a\u00E8a"), (Ids{1, 0, 1}));
}

// S22: a piece that is a special token is not found in the text of users.
TEST(Unigram, S22NeverMakesASpecialToken) {
  const std::string file = unigram(R"([["<unk>",0],["<s>",0],["<",-1],["s",-1],[">",-1]])");
  const auto tokenizer = load(
      R"({"added_tokens":[{"id":1,"content":"<s>","special":true}],"normalizer":{"type":"NFKC"},)" + file.substr(1));
  ASSERT_TRUE(tokenizer);

  EXPECT_EQ(encode(*tokenizer, "<s>"), (Ids{2, 3, 4}));
  EXPECT_EQ(encode(*tokenizer, "\uFF1Cs\uFF1E"), (Ids{2, 3, 4}));
  EXPECT_EQ(*tokenizer->encode("<s>", {.add_special = false, .parse_special = true}), Ids{1});
}

// S5
TEST(Unigram, S5RefusesWhatItCanNotUse) {
  EXPECT_NE(refusal(unigram(abcd, "\"unk_id\":null")).find("unk_id"), std::string::npos);
  EXPECT_NE(refusal(unigram(abcd, "\"unk_id\":9")).find("unk_id"), std::string::npos);
  EXPECT_NE(refusal(unigram(abcd, "\"unk_id\":-1")).find("unk_id"), std::string::npos);
  EXPECT_NE(refusal(unigram("[]")).find("vocab"), std::string::npos);
  EXPECT_NE(refusal(unigram("{}")).find("vocab"), std::string::npos);
  for (const char* vocab : {R"([["a"]])", R"([["a",nan]])", R"([["a",-inf]])", R"([["a",1e999]])", R"([["a","1"]])",
                            R"([[1,1]])", R"(["a"])", R"([["a",1,2]])", R"([["a",1])"}) {
    EXPECT_NE(refusal(unigram(vocab)), "") << vocab;
  }
}

TEST(WordPiece, TakesTheLongestPartFirst) {
  const auto tokenizer =
      load(R"({"pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece"},"model":{"type":"WordPiece",)"
           R"("unk_token":"[UNK]","max_input_chars_per_word":8,)"
           R"("vocab":{"[UNK]":0,"un":1,"##aff":2,"##able":3,"able":4,"##a":5,".":6}}})");
  ASSERT_TRUE(tokenizer);

  EXPECT_EQ(encode(*tokenizer, "unaffable able."), (Ids{0, 4, 6}));  // nine characters are too many
  EXPECT_EQ(encode(*tokenizer, "unable"), (Ids{1, 3}));
  EXPECT_EQ(encode(*tokenizer, "unaffx"), Ids{0});
  EXPECT_EQ(tokenizer->decode(Ids{1, 3, 4, 6}, true), "unable able.");
  EXPECT_EQ(tokenizer->decode(Ids{3, 4}, true), "##able able");  // nothing to continue
}

TEST(WordPiece, NeedsItsUnknownToken) {
  EXPECT_NE(refusal(R"({"model":{"type":"WordPiece","vocab":{"a":0}}})").find("unknown"), std::string::npos);
  EXPECT_NE(refusal(R"({"model":{"type":"WordPiece","unk_token":"zz","vocab":{"a":0}}})").find("zz"),
            std::string::npos);
}

TEST(Pairs, AreJoinedAsThePostProcessorSays) {
  const auto pair = [](const std::string& post_processor) {
    const auto tokenizer = load("{" + post_processor + R"("model":{"vocab":{"a":0,"b":1,"[":2,"]":3},"merges":[]}})");
    return tokenizer ? *tokenizer->encode_pair("aa", "b") : EncodedPair();
  };
  const std::string ends = R"("cls":["[",2],"sep":["]",3]},)";

  EXPECT_EQ(pair("").ids, (Ids{0, 0, 1}));
  EXPECT_EQ(pair("").types, (Ids{0, 0, 1}));
  EXPECT_EQ(pair(R"("post_processor":{"type":"BertProcessing",)" + ends).ids, (Ids{2, 0, 0, 3, 1, 3}));
  EXPECT_EQ(pair(R"("post_processor":{"type":"BertProcessing",)" + ends).types, (Ids{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(pair(R"("post_processor":{"type":"RobertaProcessing",)" + ends).ids, (Ids{2, 0, 0, 3, 3, 1, 3}));
  EXPECT_EQ(pair(R"("post_processor":{"type":"RobertaProcessing",)" + ends).types, Ids(7, 0));
  const std::string form =
      R"("post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],)"
      R"("pair":[{"Sequence":{"id":"B","type_id":1}},{"SpecialToken":{"id":"]","type_id":1}},{"Sequence":{"id":"A","type_id":0}}],)"
      R"("special_tokens":{"]":{"id":"]","ids":[3,2],"tokens":["]","["]}}},)";
  EXPECT_EQ(pair(form).ids, (Ids{1, 3, 2, 0, 0}));
  EXPECT_EQ(pair(form).types, (Ids{1, 1, 1, 0, 0}));
}

TEST(WordLevel, LooksWholeWordsUp) {
  const auto tokenizer = load(R"({"pre_tokenizer":{"type":"Whitespace"},"model":{"type":"WordLevel","unk_token":"?",)"
                              R"("vocab":{"?":0,"one":1,"two":2}}})");
  ASSERT_TRUE(tokenizer);

  EXPECT_EQ(encode(*tokenizer, "one  two onetwo"), (Ids{1, 2, 0}));
}

TEST(Bpe, MarksContinuationsAndEnds) {
  const auto tokenizer = load(
      R"({"decoder":{"type":"BPEDecoder"},"model":{"type":"BPE","continuing_subword_prefix":"##","end_of_word_suffix":"</w>",)"
      R"("vocab":{"a":0,"##b":1,"##c</w>":2,"ab":3,"abc</w>":4,"c</w>":5},"merges":["a ##b","ab ##c</w>"]}})");
  ASSERT_TRUE(tokenizer);

  EXPECT_EQ(encode(*tokenizer, "abc"), Ids{4});
  EXPECT_EQ(encode(*tokenizer, "ac"), (Ids{0, 2}));
  EXPECT_EQ(encode(*tokenizer, "c"), Ids{5});
  EXPECT_EQ(tokenizer->decode(Ids{4, 5}, true), "abc c");
  EXPECT_FALSE(tokenizer->decodes_by_token());
}

TEST(Decoders, WorkOnWholeTextsWhereTheyMust) {
  const auto decoded = [](const std::string& decoder, const Ids& ids) {
    const auto tokenizer =
        load(R"({"decoder":)" + decoder + R"(,"model":{"vocab":{"<pad>":0,"a":1,"b":2,"|":3,"xa":4},"merges":[]}})");
    if (!tokenizer) return std::string("refused");
    Detokenizer detokenizer(tokenizer, true);
    std::string streamed;
    for (const int32_t id : ids) streamed += detokenizer.add(id);
    streamed += detokenizer.finish();
    const std::string whole = tokenizer->decode(ids, true);
    return streamed == whole ? whole : whole + " streamed as " + streamed;
  };

  EXPECT_EQ(decoded(R"({"type":"CTC"})", {1, 1, 0, 1, 3, 3, 2}), "aa b");
  EXPECT_EQ(decoded(R"({"type":"Strip","content":"x","start":1,"stop":0})", {4, 4, 1}), "aaa");
  EXPECT_EQ(
      decoded(
          R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"Regex":"a+"},"content":"-"}]})",
          {1, 2, 1}),
      "-b-");
  EXPECT_EQ(decoded(R"({"type":"Replace","pattern":{"Regex":"^x"},"content":""})", {4, 2}), "ab");
}

// S5: whatever a charsmap says, nothing outside it is read.
TEST(Charsmap, S5StaysWithinItsTables) {
  EXPECT_FALSE(Charsmap::make("").ok());
  EXPECT_FALSE(Charsmap::make(std::string("\x05\0\0\0abcde", 9)).ok());
  EXPECT_FALSE(Charsmap::make(std::string("\x04\0\0\0abc", 7)).ok());
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::string bytes("\x40\0\0\0", 4);
    unsigned state = seed * 2654435761U + 1;
    for (int i = 0; i < 64; ++i) bytes += static_cast<char>((state = state * 1664525U + 1013904223U) >> 24);
    const auto charsmap = Charsmap::make(bytes + "abc");
    ASSERT_TRUE(charsmap.ok());
    for (int c = 0; c < 256; ++c) {
      const char text[] = {static_cast<char>(c), static_cast<char>(seed), 'a'};
      if (const auto match = charsmap->longest({text, 3})) EXPECT_LE(match->replacement.size(), 3U);
      if (const auto match = charsmap->shortest({text, 3})) EXPECT_LE(match->length, 3U);
    }
  }
}

std::string piece(const std::string& text, char type) {
  const std::string message =
      "\x0A" + std::string(1, static_cast<char>(text.size())) + text + std::string("\x15\0\0\0\xBF\x18", 6) + type;
  return "\x0A" + std::string(1, static_cast<char>(message.size())) + message;
}

TEST(SentencePieceModel, IsReadOrRefused) {
  const std::string model = piece("<unk>", 2) + piece("<s>", 3) + piece("\u2581", 1) + piece("a", 1);
  const auto made = Tokenizer::from_sentence_piece(model, Json());
  ASSERT_TRUE(made.ok()) << made.error().message;

  EXPECT_EQ(*(*made)->encode(" a  ax", {}), (Ids{1, 2, 3, 2, 3, 0}));
  EXPECT_EQ((*made)->decode(Ids{1, 2, 3, 0}, true), "a \u2047 ");
  EXPECT_FALSE(Tokenizer::from_sentence_piece("", Json()).ok());
  EXPECT_FALSE(Tokenizer::from_sentence_piece(piece("a", 1), Json()).ok());  // nothing for unknown text
  EXPECT_FALSE(Tokenizer::from_sentence_piece(piece("\xFF", 1), Json()).ok());
  EXPECT_FALSE(Tokenizer::from_sentence_piece(piece("a", 9), Json()).ok());
  EXPECT_FALSE(Tokenizer::from_sentence_piece(model + "\x12\x02\x18\x07", Json()).ok());    // an unknown algorithm
  EXPECT_FALSE(Tokenizer::from_sentence_piece(model + "\x1A\x04\x12\x02zz", Json()).ok());  // a charsmap of two bytes
  EXPECT_FALSE(Tokenizer::from_sentence_piece(std::string(20, '\xFF'), Json()).ok());
  const auto config =
      Json::parse(R"({"added_tokens_decoder":{"4":{"content":"<x>","special":true},"7":{"content":"y"}}})");
  EXPECT_FALSE(Tokenizer::from_sentence_piece(model, *config).ok());
}

TEST(SentencePieceModel, TakesAddedTokensFromTheConfiguration) {
  const std::string model = piece("<unk>", 2) + piece("<s>", 3) + piece("\u2581", 1) + piece("a", 1);
  const auto config = Json::parse(
      R"({"added_tokens_decoder":{"4":{"content":"<x>","special":true}},"add_bos_token":false,"eos_token":"<x>"})");
  const auto made = Tokenizer::from_sentence_piece(model, *config);
  ASSERT_TRUE(made.ok()) << made.error().message;

  EXPECT_EQ(*(*made)->encode("a<x>", {.parse_special = true}), (Ids{2, 3, 4}));
  EXPECT_EQ((*made)->eos(), 4);
}

}  // namespace
}  // namespace quern
