#include "apps/batch/batch_file.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/testing.h"

namespace quern {
namespace {

class BatchFile : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const { return own_.write(name, text); }
  static std::string line(const std::string& id, const std::string& more = R"("body":{"prompt":"x"})") {
    return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions",)" + more + "}\n";
  }

  testing::Folder own_;
  std::filesystem::path folder_ = own_.path();
};

TEST_F(BatchFile, GivesEveryRequestOnce) {
  auto input = BatchInput::open(file("in", line("a") + "\n" + line("b") + line("c")), {"b"});
  ASSERT_TRUE(input.ok()) << input.error().message;

  EXPECT_EQ(input->total(), 3);
  EXPECT_EQ(input->answered(), 1);
  EXPECT_EQ(input->next()->custom_id, "a");
  EXPECT_EQ(input->next()->custom_id, "c");
  EXPECT_FALSE(input->next());
}

TEST_F(BatchFile, RefusesAFileThatIsWrongBeforeAnythingRuns) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {line("a") + "{\n", "line 2: "},
      {line("a") + "{}\n", "line 2: there is no 'custom_id'"},
      {line("a") + line("b") + line("a"), "line 3: an earlier line has the same 'custom_id'"},
      {"[]\n", "line 1: there is no 'custom_id'"},
  };
  for (const auto& [text, message] : all) {
    const auto input = BatchInput::open(file("in", text), {});
    ASSERT_FALSE(input.ok()) << text;
    EXPECT_THAT(input.error().message, ::testing::HasSubstr(message));
  }
  EXPECT_FALSE(BatchInput::open(folder_, {}).ok());
  EXPECT_FALSE(BatchInput::open(folder_ / "none", {}).ok());
}

TEST_F(BatchFile, TellsWhatCannotBeSent) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})", "'method'"},
      {R"({"custom_id":"a","url":"/v1/files","body":{}})", "'url'"},
      {R"({"custom_id":"a","url":"/v1/completions"})", "'body'"},
      {R"({"custom_id":"a","url":"/v1/completions","body":{"stream":true}})", "'stream'"},
  };
  for (const auto& [text, message] : all) {
    const auto request = parse_batch_request(text);
    ASSERT_TRUE(request.ok());
    EXPECT_THAT(request->wrong.value_or(""), ::testing::HasSubstr(message));
  }
  EXPECT_EQ(parse_batch_request(R"({"custom_id":"a","url":"/v1/completions","body":{"seed":9007199254740993}})")->body,
            R"({"seed":9007199254740993})");
}

TEST_F(BatchFile, GoesOnWhereARunEnded) {
  const std::string path = folder_ / "out";
  {
    auto output = BatchOutput::open(path);
    ASSERT_TRUE(output.ok());
    EXPECT_TRUE(output->take_answered().empty());
    EXPECT_TRUE(output->answer({"a", "", "", {}}, {200, {{"x-request-id", "r"}}, R"({"x":1})"}).ok());
    EXPECT_TRUE(output->fail({"b", "", "", {}}, "invalid_request", "why").ok());
  }
  std::ofstream(path, std::ios::app) << R"({"id":"q","custom_id":"c","resp)";
  {
    auto output = BatchOutput::open(path);
    ASSERT_TRUE(output.ok()) << output.error().message;
    EXPECT_THAT(output->take_answered(), ::testing::UnorderedElementsAre("a", "b"));
    EXPECT_TRUE(output->answer({"c", "", "", {}}, {400, {}, "no JSON"}).ok());
  }
  auto output = BatchOutput::open(path);
  ASSERT_TRUE(output.ok());
  EXPECT_THAT(output->take_answered(), ::testing::UnorderedElementsAre("a", "b", "c"));
  const std::string text = read_file(path).value();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text,
              ::testing::HasSubstr(R"("response":{"status_code":200,"request_id":"r","body":{"x":1}},"error":null})"));
  EXPECT_THAT(text, ::testing::HasSubstr(R"("response":null,"error":{"code":"invalid_request","message":"why"}})"));
}

TEST_F(BatchFile, WritesIntoNoOtherFile) {
  EXPECT_FALSE(BatchOutput::open(file("notes", "Dear diary\n")).ok());
  EXPECT_FALSE(BatchOutput::open(folder_ / "none" / "out").ok());
}

}  // namespace
}  // namespace quern
