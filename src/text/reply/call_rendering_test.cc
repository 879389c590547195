// What templates make of calls is found by trying them.
#include "text/reply/call_rendering.h"

#include <gtest/gtest.h>

namespace quern {
namespace {

CallRendering of(const std::string& source) { return try_calls(ChatTemplate::parse(source).value()); }

std::string with_arguments(const std::string& arguments) {
  return "{% for m in messages %}{{ m.role }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}" + arguments +
         "{% endfor %}{% endfor %}{{ tools | length }}";
}

TEST(CallRendering, FindsHowArgumentsAreWanted) {
  const CallRendering objects = of(with_arguments("{{ c.function.arguments | tojson }}"));
  const CallRendering texts = of(with_arguments("{{ '<' + c.function.arguments + '>' }}"));
  const CallRendering both = of(with_arguments(
      "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}"));

  EXPECT_TRUE(objects.takes_objects);
  EXPECT_FALSE(objects.takes_text);
  EXPECT_FALSE(texts.takes_objects);
  EXPECT_TRUE(texts.takes_text);
  EXPECT_TRUE(both.takes_objects);
  EXPECT_TRUE(both.takes_text);
  EXPECT_TRUE(both.tools);
}

TEST(CallRendering, FindsWhetherContentMayBeMissing) {
  EXPECT_TRUE(of(with_arguments("{{ c.function.arguments | tojson }}")).takes_no_content);
  EXPECT_FALSE(of("{% for m in messages %}{{ m.content + '.' }}{% endfor %}").takes_no_content);
  EXPECT_FALSE(
      of("{% for m in messages %}{{ m.content }}{{ (m.tool_calls or []) | tojson }}{% endfor %}").takes_no_content);
}

TEST(CallRendering, LooksForToolsInTheTemplateOfTools) {
  ChatTemplate two = ChatTemplate::parse("{{ messages }}").value();
  EXPECT_FALSE(try_calls(two).tools);

  ASSERT_TRUE(two.add("tool_use", "{{ tools }}").ok());

  EXPECT_TRUE(try_calls(two).tools);
}

TEST(CallRendering, SurvivesTemplatesThatDoNotEnd) {
  const CallRendering found = of("{% for i in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}");

  EXPECT_FALSE(found.tools);
  EXPECT_FALSE(found.takes_no_content);
}

}  // namespace
}  // namespace quern
