#include "text/stop.h"

#include <gtest/gtest.h>
#include <random>

namespace quern {
namespace {

/// What the text is cut to, by looking at all of it.
std::string expected(const std::string& text, const std::vector<std::string>& stops, bool keep) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (size_t begin = 0; begin < end; ++begin) {
      for (const std::string& stop : stops) {
        if (!stop.empty() && text.substr(begin, end - begin) == stop) return text.substr(0, keep ? end : begin);
      }
    }
  }
  return text;
}

TEST(StopMatcher, FindsTheSameInEverySplitOfAText) {
  const std::vector<std::vector<std::string>> lists = {
      {}, {""}, {"b"}, {"aab"}, {"ab", "aba", "ba"}, {"bc", "abcd", "c"}, {"é", "aé"}, {"aaaa", "aa"}, {"xyz"}};
  for (const std::string text : {"", "aab", "aaab", "abab", "abcabcd", "aaéb", "aaaaaa", "xyxyxyz", "xy"}) {
    for (const auto& stops : lists) {
      for (uint32_t cuts = 0; cuts < (1U << text.size()); ++cuts) {
        const bool keep = (cuts & 1) != 0;
        StopMatcher matcher(stops, keep);
        std::string shown;
        std::string piece;
        for (size_t i = 0; i < text.size(); ++i) {
          piece += text[i];
          if ((cuts >> i & 1) == 0) continue;
          shown += matcher.add(piece);
          ASSERT_EQ(shown, expected(text, stops, keep).substr(0, shown.size())) << text << ' ' << cuts;
          piece.clear();
        }
        shown += matcher.add(piece);
        shown += matcher.finish();
        ASSERT_EQ(shown, expected(text, stops, keep)) << text << ' ' << cuts;
      }
    }
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldBecomeAStop) {
  StopMatcher matcher({"</s>", "END"}, false);

  EXPECT_EQ(matcher.add("hello <"), "hello ");
  EXPECT_EQ(matcher.add("b>EN"), "<b>");
  EXPECT_EQ(matcher.add("E"), "EN");
  EXPECT_EQ(matcher.finish(), "E");
  EXPECT_FALSE(matcher.found());
}

TEST(StopMatcher, SaysNothingMoreAfterAStop) {
  StopMatcher matcher({"stop", "top"}, true);

  EXPECT_EQ(matcher.add("a st"), "a ");
  EXPECT_EQ(matcher.add("op and more"), "stop");
  EXPECT_EQ(matcher.found(), "stop");  // both end here; this one starts first
  EXPECT_EQ(matcher.add("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, C13StaysLinearOnLongAnswers) {
  StopMatcher matcher({std::string(50, 'a') + "b", "\n\n"}, false);
  size_t shown = 0;

  for (int i = 0; i < 200'000; ++i) shown += matcher.add("a").size();

  EXPECT_EQ(shown, 200'000U - 50);
}

}  // namespace
}  // namespace quern
