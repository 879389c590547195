// The engine against Python's jinja2: tools/make_template_cases.py makes the reference values.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

#include "base/json.h"
#include "text/chat_template.h"

namespace quern {
namespace {

constexpr int64_t kUnixTime = 1721990096;  // as in the tool

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Json read_json(const std::string& name) {
  auto json = Json::parse(read_text(QUERN_SOURCE_DIR "/src/text/testdata/" + name));
  EXPECT_TRUE(json.ok()) << name << ": " << (json.ok() ? "" : json.error().message);
  return json.ok() ? *json : Json();
}

/// Parses and renders at the fixed time.
Result<std::string> render(const std::string& source, const Json& variables) {
  ASSIGN_OR_RETURN(const ChatTemplate parsed, ChatTemplate::parse(source));
  ASSIGN_OR_RETURN(const std::vector<TextPiece> pieces, parsed.render(variables, {}, {}, kUnixTime));
  return join(pieces);
}

std::string fnv1a(const std::string& text) {
  uint64_t value = 0xCBF29CE484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

TEST(ChatTemplateReference, SnippetsRenderAsInJinja) {
  const Json file = read_json("template_cases.json");
  ASSERT_TRUE(file.has("cases"));
  ASSERT_GT(file.find("cases")->items().size(), 500u);

  for (const Json& entry : file.find("cases")->items()) {
    const std::string& source = entry.items()[0].as_string();
    const Json& expected = entry.items()[1];
    const auto text = render(source, *file.find("variables"));
    if (expected.is_null()) {
      EXPECT_FALSE(text.ok()) << source << "\n  must be refused, gave: " << (text.ok() ? *text : "");
    } else {
      EXPECT_TRUE(text.ok()) << source << "\n  " << (text.ok() ? "" : text.error().message);
      if (text.ok()) EXPECT_EQ(*text, expected.as_string()) << source;
    }
  }
}

/// llama.cpp's templates.
const std::string folder = QUERN_SOURCE_DIR "/build/vocabularies/templates";

TEST(ChatTemplateReference, RealTemplatesRenderAsInJinja) {
  ASSERT_TRUE(std::filesystem::exists(folder)) << "tools/fetch_vocabularies brings " << folder;
  const Json conversations = read_json("template_conversations.json");
  const Json hashes = read_json("template_hashes.json");
  int compared = 0;

  for (const auto& [name, expected] : hashes.members()) {
    const auto parsed = ChatTemplate::parse(read_text(folder + "/" + name + ".jinja"));
    ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.error().message;
    for (size_t i = 0; i < conversations.items().size(); ++i) {
      const Json& conversation = conversations.items()[i];
      const auto pieces = parsed->render(*conversation.find("variables"), {}, {}, kUnixTime);
      const std::string& wanted = expected.items()[i].as_string();
      // A template's own words are kept; those of the engine are its own.
      const bool own_words = wanted.starts_with("error: ");
      const std::string error = pieces.ok() ? "" : pieces.error().message;
      const std::string found = pieces.ok() ? fnv1a(join(*pieces)) : own_words ? "error: " + error : "error";
      EXPECT_EQ(found, wanted) << name << ", " << *conversation.string("name") << ": " << error;
      ++compared;
    }
  }
  EXPECT_EQ(compared, static_cast<int>(hashes.members().size() * conversations.items().size()));
}

TEST(ChatTemplateReference, SomeRealTemplatesShowTheirWholeText) {
  ASSERT_TRUE(std::filesystem::exists(folder)) << "tools/fetch_vocabularies brings " << folder;
  const Json conversations = read_json("template_conversations.json");
  const Json texts = read_json("template_texts.json");
  ASSERT_GT(texts.items().size(), 10u);

  for (const Json& sample : texts.items()) {
    const std::string& name = sample.items()[0].as_string();
    for (const Json& conversation : conversations.items()) {
      if (conversation.string("name") != sample.items()[1].as_string()) continue;
      const auto text = render(read_text(folder + "/" + name + ".jinja"), *conversation.find("variables"));
      ASSERT_TRUE(text.ok()) << name << ": " << text.error().message;
      EXPECT_EQ(*text, sample.items()[2].as_string()) << name;
    }
  }
}

}  // namespace
}  // namespace quern
