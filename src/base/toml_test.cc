#include "base/toml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

namespace quern {
namespace {

using ::testing::HasSubstr;

TEST(Toml, BecomesJson) {
  const auto value = parse_toml(
      "# a comment\nname = \"a\\u0062\" # more\nraw = '\\d'\ncount = 1_000\nhex = 0x10\nrate = 2.5\non = true\n"
      "list = [ 1,\n 2, ]\n[table.inner]\n\"quoted key\" = -3\n[[many]]\nx = 1\n[[many]]\nx = 2\n");

  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_EQ(value->string("name"), "ab");
  EXPECT_EQ(value->string("raw"), "\\d");
  EXPECT_EQ(value->integer("count"), 1000);
  EXPECT_EQ(value->integer("hex"), 16);
  EXPECT_EQ(value->number("rate"), 2.5);
  EXPECT_EQ(value->boolean("on"), true);
  EXPECT_EQ(value->find("list")->items().size(), 2U);
  EXPECT_EQ(value->find("table")->find("inner")->integer("quoted key"), -3);
  EXPECT_EQ(value->find("many")->items()[1].integer("x"), 2);
}

TEST(Toml, SaysWhereItIsWrong) {
  for (const char* text :
       {"\n\nx = ", "\n\nx", "\n\n= 1", "\n\nx = 'open", "\n\n[a", "\n\nx = 1 y = 2", "\n\nx = 2020-01-01"}) {
    const auto value = parse_toml(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_THAT(value.error().message, HasSubstr("line 3")) << text;
  }
  EXPECT_FALSE(parse_toml("x = 1\nx = 2").ok());
  EXPECT_FALSE(parse_toml("x = \"\xff\"").ok());
  EXPECT_FALSE(parse_toml("x = " + std::string(100'000, '[')).ok());
}

}  // namespace
}  // namespace quern
