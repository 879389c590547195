#include "base/duration.h"

#include <gtest/gtest.h>

namespace quern {
namespace {

TEST(Duration, ReadsNumbersAndUnits) {
  EXPECT_EQ(parse_duration("300").value(), 300);
  EXPECT_EQ(parse_duration("-1").value(), -1);
  EXPECT_EQ(parse_duration("0").value(), 0);
  EXPECT_EQ(parse_duration("5m").value(), 300);
  EXPECT_EQ(parse_duration("1h30m").value(), 5400);
  EXPECT_EQ(parse_duration("1.5s").value(), 1.5);
  EXPECT_DOUBLE_EQ(parse_duration("250ms").value(), 0.25);
  EXPECT_EQ(parse_duration("-1m").value(), -60);
}

TEST(Duration, RefusesOtherText) {
  for (const char* text : {"", "-", "m", "5x", "5m3", "1e9", "inf", "nan", " 5", "5 m", "--5", "0x10"})
    EXPECT_FALSE(parse_duration(text).ok()) << text;
}

}  // namespace
}  // namespace quern
