#include "apps/loader_text.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "base/testing.h"

namespace quern {
namespace {

constexpr const char* tokenizer_json = R"({"version": "1.0", "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}, "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

/// A checkpoint that is a directory, and the text files that a test puts there.
class Directory final : public Checkpoint {
 public:
  std::string write(const std::string& name, const std::string& text) const { return own_.write(name, text); }

  CheckpointKind kind() const override { return CheckpointKind::safetensors; }
  const std::string& path() const override { return own_.path(); }
  const StoredTensor* find(std::string_view /*name*/) const override { return nullptr; }
  std::span<const StoredTensor> tensors() const override { return {}; }
  const Json& config() const override { return none_; }
  const Json& generation_config() const override { return none_; }
  Result<std::optional<StoredVocabulary>> vocabulary() const override { return std::optional<StoredVocabulary>(); }
  void drop(std::span<const std::byte> /*bytes*/) const override {}

 private:
  testing::Folder own_;
  Json none_;
};

std::string template_of(const Checkpoint& checkpoint, const std::string& other = {}) {
  const auto loaded = load_chat_template(checkpoint, other);
  if (!loaded.ok()) return loaded.error().message;
  return *loaded ? (*loaded)->source() : "none";
}

TEST(LoaderText, ATokenizerIsFoundBesideTheModelOrWhereTheUserSays) {
  const Directory model;
  const auto missing = load_tokenizer(model);
  const std::string file = model.write("tokenizer.json", tokenizer_json);

  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, model.path() +
                                         ": there is no tokenizer.json, tokenizer.model, tekken.json or vocab.json "
                                         "with merges.txt; name one with --tokenizer");
  for (const std::string& other : {std::string(), file, model.path()}) {
    const auto tokenizer = load_tokenizer(model, other);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ((*tokenizer)->size(), 3);
  }
  EXPECT_FALSE(load_tokenizer(model, "vocab.txt").ok());
}

TEST(LoaderText, AnErrorNamesTheFile) {
  const Directory model;
  model.write("tokenizer.json", "{");
  model.write("chat_template.jinja", "{% if");

  EXPECT_TRUE(load_tokenizer(model).error().message.starts_with(model.path() + "/tokenizer.json: "));
  EXPECT_TRUE(template_of(model).starts_with(model.path() + "/chat_template.jinja: ")) << template_of(model);
}

TEST(LoaderText, OldAndMistralsOwnFilesAreTokenizersToo) {
  const Directory model;
  model.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<s>": 3, "</s>": 4})");
  EXPECT_FALSE(load_tokenizer(model).ok());
  model.write("merges.txt", "#version: 0.2\na b\n");
  EXPECT_EQ((*load_tokenizer(model))->encode("ab", {}).value(), (std::vector<int32_t>{2}));
  model.write("config.json", R"({"model_type": "roberta"})");
  EXPECT_EQ((*load_tokenizer(model))->encode("ab", {}).value(), (std::vector<int32_t>{3, 2, 4}));
  model.write("tekken.json", "{}");
  EXPECT_TRUE(load_tokenizer(model).error().message.find("tekken.json: there is no \"config\"") != std::string::npos);
}

TEST(LoaderText, ATemplateOfItsOwnWinsOverTheConfigurations) {
  const Directory model;
  EXPECT_EQ(template_of(model), "none");

  model.write("chat_template.json", R"({"chat_template": "of a processor"})");
  model.write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(template_of(model), "of a processor");

  model.write("tokenizer_config.json", R"({"chat_template": "from config"})");
  EXPECT_EQ(template_of(model), "from config");

  model.write("chat_template.jinja", "from file");
  EXPECT_EQ(template_of(model), "from file");

  EXPECT_EQ(template_of(model, "{{ given }}"), "{{ given }}");
  EXPECT_EQ(template_of(model, model.write("other.jinja", "other")), "other");
}

/// What the template of a model makes of an empty conversation, and of one with tools.
std::string rendered(const Directory& model) {
  const auto loaded = load_chat_template(model);
  EXPECT_TRUE(loaded.ok() && *loaded);
  std::string out;
  for (const char* variables :
       {R"({"messages":[]})", R"({"messages":[],"tools":[]})", R"({"messages":[],"tools":[1]})"}) {
    out += join((*loaded)->render(Json::parse(variables).value()).value()) + "|";
  }
  return out;
}

TEST(LoaderText, ConversationsWithToolsMayHaveATemplateOfTheirOwn) {
  const Directory model;
  model.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools {{ tools }}"},
                                                              {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(rendered(model), "plain|plain|tools [1]|");

  model.write("chat_template.jinja", "from file");
  EXPECT_EQ(rendered(model), "from file|from file|from file|");

  model.write("additional_chat_templates/tool_use.jinja", "file of tools");
  EXPECT_EQ(rendered(model), "from file|from file|file of tools|");

  model.write("additional_chat_templates/tool_use.jinja", "{% if");
  EXPECT_NE(template_of(model).find("the template \"tool_use\": "), std::string::npos) << template_of(model);
}

TEST(LoaderText, ATemplateThatNobodyHasToUseMayBeBroken) {
  const Directory model;
  model.write("chat_template.jinja", "plain");
  model.write("additional_chat_templates/rag.jinja", "{% if");
  model.write("additional_chat_templates/short.jinja", "brief");

  const auto loaded = load_chat_template(model);

  ASSERT_TRUE(loaded.ok() && *loaded);
  EXPECT_EQ((*loaded)->named("rag"), nullptr);
  EXPECT_NE((*loaded)->named("short"), nullptr);
}

TEST(LoaderText, TemplatesAreFoundByTheirNames) {
  const auto rendered_by = [](const Directory& model, std::string_view name) {
    const auto loaded = load_chat_template(model);
    EXPECT_TRUE(loaded.ok() && *loaded);
    const ChatTemplate* const named = (*loaded)->named(name);
    return named == nullptr ? "none" : join(named->render(Json::parse(R"({"tools":[1]})").value()).value());
  };
  const Directory model;
  model.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "of documents"},
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}, {"name": "x"}]})");
  EXPECT_EQ(rendered_by(model, "rag"), "of documents");
  EXPECT_EQ(rendered_by(model, "default"), "plain");
  EXPECT_EQ(rendered_by(model, "tool_use"), "tools");
  EXPECT_EQ(rendered_by(model, "x"), "none");

  model.write("chat_template.jinja", "from file");
  EXPECT_EQ(rendered_by(model, "default"), "none");
  model.write("additional_chat_templates/rag.jinja", "from another");
  model.write("additional_chat_templates/notes.txt", "{% if");
  EXPECT_EQ(rendered_by(model, "rag"), "from another");
  EXPECT_EQ(rendered_by(model, "default"), "from file");
  EXPECT_EQ(rendered_by(model, "notes"), "none");
}

TEST(LoaderText, OfNamedTemplatesTheDefaultIsTaken) {
  const Directory model;
  model.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                                              {"name": "default", "template": "plain"},
                                                              {"name": "rag", "template": "rag"}]})");

  EXPECT_EQ(template_of(model), "plain");
}

}  // namespace
}  // namespace quern
