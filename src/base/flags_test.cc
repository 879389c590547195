#include "base/flags.h"

#include <cmath>
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
  double part = 0.5;
  double rate = 0.5;
  std::vector<int> sizes;
  std::string length;
};

Parsed parse(std::vector<std::string> words) {
  Parsed parsed;
  Flags flags("quern x", "quern x --count 1");
  flags.add("--max-count", "N", "how many", &parsed.count, between(1, 1'000'000));
  flags.add("--part", "P", "a part", &parsed.part, Bounds{0, 1, true});
  flags.add("--rate", "R", "a rate", &parsed.rate, above(0));
  flags.add("--length", "N|auto", "a length", &parsed.length, between(1, 99), "auto");
  flags.add("--sizes", "A,B,...", "some numbers", &parsed.sizes, between(1, 9));
  flags.add("--turned-on", "switch", &parsed.on);
  flags.add("--api-key", "KEY", "keys", &parsed.keys);
  flags.add("--bytes", "N", "bytes", &parsed.bytes, between(0, 0x1p50));
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
  flags.add("--count", "N", "how many", &count, between(0, 9));
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

TEST(Flags, ValuesOfAListFollowOnlyAfterAnArgument) {
  std::vector<std::string> names;
  std::vector<std::string> models;
  bool quiet = false;
  Flags flags("x", "y");
  flags.add("--name", "NAME...", "names", &names);
  flags.take_more("--name");
  flags.add("--quiet", "", &quiet);
  flags.positional("MODEL", &models);
  const auto parse_words = [&](std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    EXPECT_TRUE(flags.parse(arguments).ok());
  };

  parse_words({"m", "--name", "a", "b", "--quiet", "n"});
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(models, (std::vector<std::string>{"m", "n"}));
  parse_words({"--name", "a", "m"});
  EXPECT_EQ(names, (std::vector<std::string>{"a"}));
  EXPECT_EQ(models, (std::vector<std::string>{"m"}));
}

TEST(Flags, TakesNumbersUpToTheirBounds) {
  EXPECT_EQ(parse({"--max-count", "1m"}).count, 1'000'000);
  EXPECT_EQ(parse({"--part", "1"}).part, 1.0);
  EXPECT_TRUE(std::isinf(parse({"--rate", "inf"}).rate));
  EXPECT_EQ(parse({"--sizes", "9,1"}).sizes, (std::vector<int>{9, 1}));
  EXPECT_EQ(parse({"--length", "auto"}).length, "auto");
  EXPECT_EQ(parse({"--length", "9"}).length, "9");
  EXPECT_EQ(parse({"--length", "-1"}).length, "auto");
  const Parsed none = parse({"--sizes", "3", "--sizes", ""});
  EXPECT_TRUE(none.status.ok() && none.sizes.empty());
}

TEST(Flags, NamesTheNearestFlag) {
  EXPECT_EQ(parse({"--max-cuont", "1"}).status.error().message, "unknown flag --max-cuont; did you mean --max-count?");
  EXPECT_EQ(parse({"--zebra"}).status.error().message, "unknown flag --zebra; see --help");
}

TEST(Flags, RefusesBadValues) {
  for (const std::string text : {"many", "0", "-5", "1000001", "9g", "1e2", "99999999999999999999"}) {
    EXPECT_EQ(parse({"--max-count", text}).status.error().message,
              "--max-count " + text + ": say a whole number from 1 to 1000000");
  }
  EXPECT_EQ(parse({"--max-count="}).status.error().message,
            "--max-count an empty value: say a whole number from 1 to 1000000");
  for (const std::string text : {"nan", "0", "-0.1", "1.1", "inf", "1e99", "0.5x"}) {
    EXPECT_EQ(parse({"--part", text}).status.error().message, "--part " + text + ": say a number above 0 and up to 1");
  }
  EXPECT_EQ(parse({"--rate", "nan"}).status.error().message, "--rate nan: say a number above 0, or inf");
  EXPECT_EQ(parse({"--length", "0"}).status.error().message, "--length 0: say a whole number from 1 to 99, or auto");
  EXPECT_EQ(parse({"--sizes", "1,10"}).status.error().message,
            "--sizes 1,10: say whole numbers with commas between them, each from 1 to 9");
  EXPECT_EQ(parse({"--max-count"}).status.error().message, "--max-count needs a value: --max-count N");
  EXPECT_EQ(parse({"a", "b"}).status.error().message, "unexpected argument 'b'");
}

}  // namespace
}  // namespace quern
