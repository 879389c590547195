// Models in several GGUF files: found from the name of any, and refused when something is missing or mixed up.
#include "checkpoint/gguf_parts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/testing.h"

namespace quern {
namespace {

using ::testing::AllOf;
using testing::Folder;
using testing::GgufWriter;
using ::testing::HasSubstr;

std::string name_of(int number, int count = 3) { return fmt::format("m-{:05}-of-{:05}.gguf", number, count); }

/// Part `number`, with one tensor; the first has what is the model's.
GgufWriter part(int number, uint32_t tensors = 3) {
  GgufWriter writer;
  if (number == 1) writer.string("general.name", "first").u32("split.tensors.count", tensors);
  writer.u32("split.no", static_cast<uint32_t>(number - 1)).u32("split.count", 3);
  writer.zeros(fmt::format("tensor{}", number), {8});
  return writer;
}

void write_all(const Folder& folder) {
  for (int number = 1; number <= 3; ++number) folder.write(name_of(number), part(number).bytes());
}

Result<GgufFiles> open_part(const Folder& folder, const std::string& name) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(folder.path() + "/" + name));
  return open_gguf_files(std::move(file));
}

std::string refusal(const Folder& folder, const std::string& name) {
  const auto opened = open_part(folder, name);
  return opened.ok() ? "accepted" : opened.error().message;
}

TEST(GgufParts, AnyPartOpensAll) {
  const Folder folder;
  write_all(folder);
  for (int number = 1; number <= 3; ++number) {
    const GgufFiles opened = open_part(folder, name_of(number)).value();

    ASSERT_EQ(opened.files.size(), 3U);
    EXPECT_TRUE(opened.files.front().path().ends_with(name_of(1)));
    EXPECT_EQ(opened.gguf.string("general.name").value(), "first");
    ASSERT_EQ(opened.gguf.tensors().size(), 3U);
    for (int i = 1; i <= 3; ++i) {
      const StoredTensor* tensor = opened.gguf.find_tensor(fmt::format("tensor{}", i));
      ASSERT_NE(tensor, nullptr);
      const std::span<const std::byte> file = opened.files[static_cast<size_t>(i) - 1].bytes();
      EXPECT_GE(tensor->bytes.data(), file.data());
      EXPECT_LE(tensor->bytes.data() + tensor->bytes.size(), file.data() + file.size());
    }
  }
}

TEST(GgufParts, AMissingPartIsNamed) {
  const Folder folder;
  folder.write(name_of(1), part(1).bytes());
  folder.write(name_of(3), part(3).bytes());
  EXPECT_THAT(refusal(folder, name_of(1)), AllOf(HasSubstr(name_of(2)), HasSubstr("part 2 of 3 is missing")));
}

TEST(GgufParts, NamesAndNumbersMustAgree) {
  const Folder folder;
  write_all(folder);
  folder.write("renamed.gguf", part(1).bytes());
  EXPECT_THAT(refusal(folder, "renamed.gguf"), HasSubstr("must end in -00001-of-00003.gguf"));
  folder.write(name_of(2), part(3).bytes());
  EXPECT_THAT(refusal(folder, name_of(1)), HasSubstr("says that it is part 3 of 3, expected part 2 of 3"));
  EXPECT_THAT(refusal(folder, name_of(2)), HasSubstr("is part 3 of 3, so its name must end"));
  folder.write(name_of(2), GgufWriter().zeros("tensor2", {8}).bytes());
  EXPECT_THAT(refusal(folder, name_of(3)), HasSubstr("says that it is part 1 of 1, expected part 2 of 3"));
}

TEST(GgufParts, TensorsAreCountedAndInOnePartOnly) {
  const Folder folder;
  write_all(folder);
  folder.write(name_of(1), part(1, 4).bytes());
  EXPECT_THAT(refusal(folder, name_of(1)), HasSubstr(R"("split.tensors.count" is 4, but the parts have 3 tensors)"));
  folder.write(name_of(1), part(1).zeros("tensor3", {8}).bytes());
  EXPECT_THAT(refusal(folder, name_of(1)), AllOf(HasSubstr(name_of(3)), HasSubstr("\"tensor3\" is in another part")));
}

TEST(GgufParts, NumbersThatCannotBeAreRefused) {
  const Folder folder;
  const auto refused = [&](const GgufWriter& writer) {
    folder.write("one.gguf", writer.bytes());
    return refusal(folder, "one.gguf");
  };
  EXPECT_THAT(refused(GgufWriter().u32("split.count", 0xFFFFFFFF)), HasSubstr("split.count"));
  EXPECT_THAT(refused(GgufWriter().u32("split.count", 65535).u32("split.no", 0)), HasSubstr("-00001-of-65535.gguf"));
  EXPECT_THAT(refused(GgufWriter().u32("split.count", 3)), HasSubstr("\"split.no\" is missing"));
  EXPECT_THAT(refused(GgufWriter().u32("split.count", 3).u32("split.no", 3)), HasSubstr("is 3, expected 0 to 2"));
  EXPECT_EQ(refused(GgufWriter().u32("split.count", 0)), "accepted");  // what joining parts leaves behind
  EXPECT_EQ(refused(GgufWriter().u32("split.count", 1).u32("split.no", 0)), "accepted");
}

}  // namespace
}  // namespace quern
