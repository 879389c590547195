// What a figure was measured on.
#include "apps/measure/machine_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quern {
namespace {

using ::testing::ContainsRegex;

TEST(MachineFacts, NameTheMachineItsClocksAndTheProgram) {
  const Json facts = machine_facts();

  EXPECT_FALSE(facts.string("version")->empty());
  EXPECT_GE(*facts.integer("cores"), *facts.integer("usable_cores"));
  EXPECT_GE(*facts.integer("usable_cores"), 1);
  EXPECT_GT(*facts.integer("memory_bytes"), 1 << 20);
  EXPECT_FALSE(facts.string("kernel")->empty());
  EXPECT_GE(*facts.integer("clock_resolution_ns"), 1);
  for (const char* key : {"git_hash", "cpu", "cpu_mhz"}) EXPECT_TRUE(facts.has(key)) << key;
  if (!git_hash.empty()) EXPECT_THAT(std::string(git_hash), ContainsRegex("^[0-9a-f]+$"));
}

TEST(MachineFacts, AreReadFromLinesOfProc) {
  const std::string_view text = "model\t\t: 106\nmodel name\t: A  B @ 2GHz\nempty\t:\nMemTotal:       12 kB\n";

  EXPECT_EQ(proc_value(text, "model name"), "A  B @ 2GHz");
  EXPECT_EQ(proc_value(text, "model"), "106");
  EXPECT_EQ(proc_value(text, "MemTotal"), "12 kB");
  EXPECT_EQ(proc_value(text, "empty"), "");
  EXPECT_EQ(proc_value(text, "absent"), "");
}

}  // namespace
}  // namespace quern
