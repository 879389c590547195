// What was kept is found again, and damage costs only what it hit.
#include "base/kept_file.h"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "base/testing.h"

namespace quern {
namespace {

class KeptFileTest : public ::testing::Test {
 protected:
  KeptFile open(const std::string& identity = "gpu a") const {
    return {folder_.path() + "/deep", "products", identity};
  }
  std::string path() const { return folder_.path() + "/deep/products"; }
  std::string text() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path(), std::ios::binary | std::ios::trunc) << text; }
  static std::string value_of(const KeptFile& file, const std::string& key) {
    const std::string* const value = file.find(key);
    return value == nullptr ? "nothing" : *value;
  }

 private:
  testing::Folder folder_;
};

TEST_F(KeptFileTest, FindsWhatAnEarlierRunKept) {
  {
    KeptFile file = open();
    EXPECT_EQ(file.find("one"), nullptr);
    file.keep("one", "1");
    file.keep("two", "2");
    file.keep("one", "11");
    EXPECT_EQ(value_of(file, "one"), "11");
  }
  const KeptFile again = open();
  EXPECT_EQ(value_of(again, "one"), "11");
  EXPECT_EQ(value_of(again, "two"), "2");
}

TEST_F(KeptFileTest, KeepsIdentitiesApartInOneFile) {
  open("gpu a").keep("one", "a");
  open("gpu b").keep("one", "b");
  EXPECT_EQ(value_of(open("gpu a"), "one"), "a");
  EXPECT_EQ(value_of(open("gpu b"), "one"), "b");
  EXPECT_EQ(value_of(open("gpu c"), "one"), "nothing");
}

TEST_F(KeptFileTest, SkipsDamagedLinesAndGoesOn) {
  {
    KeptFile file = open();
    file.keep("one", "1");
    file.keep("two", "2");
    file.keep("three", "3");
  }
  std::string damaged = text();
  damaged[damaged.find(" two 2") + 5] = '7';
  damaged.insert(0, std::string("\0\xFFgarbage\n\n", 10));
  damaged.resize(damaged.size() - 1);  // the last line lacks its end
  write(damaged);
  KeptFile file = open();
  EXPECT_EQ(value_of(file, "one"), "1");
  EXPECT_EQ(value_of(file, "two"), "nothing");
  EXPECT_EQ(value_of(file, "three"), "3");
  file.keep("two", "2");
  file.keep("four", "4");
  EXPECT_EQ(value_of(open(), "four"), "4");
}

TEST_F(KeptFileTest, BeginsAnewWhenTheFileIsTooLong) {
  open().keep("one", "1");
  write(text() + std::string(KeptFile::max_bytes, 'x'));
  KeptFile file = open();
  EXPECT_EQ(value_of(file, "one"), "nothing");
  file.keep("one", "1");
  EXPECT_LT(text().size(), 100U);
  EXPECT_EQ(value_of(open(), "one"), "1");
}

TEST_F(KeptFileTest, WorksWhereNothingCanBeWritten) {
  KeptFile nowhere("", "products", "gpu");
  nowhere.keep("one", "1");
  EXPECT_EQ(value_of(nowhere, "one"), "1");
  KeptFile unwritable("/dev/null/folder", "products", "gpu");
  unwritable.keep("one", "1");
  EXPECT_EQ(value_of(unwritable, "one"), "1");
}

}  // namespace
}  // namespace quern
