#include "base/flags.h"

#include <gtest/gtest.h>

namespace quern {
namespace {

struct Parsed {
  Status status;
  int count = 1;
  bool on = false;
  std::string model;
  std::vector<std::string> keys;
  int64_t bytes = 0;
};

Parsed parse(std::vector<std::string> words) {
  Parsed parsed;
  Flags flags("quern x", "quern x --count 1");
  flags.add("--max-count", "N", "how many", &parsed.count);
  flags.add("--turned-on", "switch", &parsed.on);
  flags.add("--api-key", "KEY", "keys", &parsed.keys);
  flags.add("--bytes", "N", "bytes", &parsed.bytes);
  flags.alias("-n", "--max-count");
  flags.positional("MODEL", &parsed.model);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  parsed.status = flags.parse(arguments);
  return parsed;
}

TEST(Flags, TakesEverySpelling) {
  const Parsed parsed =
      parse({"--max_count=3", "m.gguf", "--turned-on", "--api-key", "a", "--api-key=b", "--bytes", "2Gi"});

  ASSERT_TRUE(parsed.status.ok());
  EXPECT_EQ(parsed.count, 3);
  EXPECT_TRUE(parsed.on);
  EXPECT_EQ(parsed.model, "m.gguf");
  EXPECT_EQ(parsed.keys, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parsed.bytes, int64_t{2} << 30);
  EXPECT_FALSE(parse({"--no-turned-on"}).on);
  EXPECT_EQ(parse({"-n", "2k"}).count, 2000);
}

TEST(Flags, ALaterCallTakesThePlaceOfAnEarlierOne) {
  int count = 0;
  std::vector<std::string> keys;
  std::vector<std::string> models;
  Flags flags("quern x", "quern x");
  flags.add("--count", "N", "how many", &count);
  flags.add("--key", "KEY", "keys", &keys);
  flags.positional("MODEL", &models);
  const auto parse_words = [&](std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    return flags.parse(arguments).ok();
  };

  ASSERT_TRUE(parse_words({"--count=1", "--key=a", "--key=b", "m", "n"}));
  ASSERT_TRUE(parse_words({"--key=c"}));

  EXPECT_EQ(count, 1);
  EXPECT_EQ(keys, (std::vector<std::string>{"c"}));
  EXPECT_EQ(models, (std::vector<std::string>{"m", "n"}));
  ASSERT_TRUE(parse_words({"--count=2", "o"}));
  EXPECT_EQ(count, 2);
  EXPECT_EQ(models, (std::vector<std::string>{"o"}));
}

TEST(Flags, NamesTheNearestFlag) {
  EXPECT_EQ(parse({"--max-cuont", "1"}).status.error().message, "unknown flag --max-cuont; did you mean --max-count?");
  EXPECT_EQ(parse({"--zebra"}).status.error().message, "unknown flag --zebra; see --help");
}

TEST(Flags, RefusesBadValues) {
  EXPECT_EQ(parse({"--max-count", "many"}).status.error().message, "--max-count: 'many' is not a whole number");
  EXPECT_EQ(parse({"--max-count", "9g"}).status.error().message, "--max-count: 9g is out of range");
  EXPECT_EQ(parse({"--max-count"}).status.error().message, "--max-count needs a value: --max-count N");
  EXPECT_EQ(parse({"a", "b"}).status.error().message, "unexpected argument 'b'");
}

}  // namespace
}  // namespace quern
