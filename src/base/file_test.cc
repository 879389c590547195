#include "base/file.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace quern {
namespace {

/// A file of so many bytes 'x', gone with the object.
struct File {
  explicit File(size_t size) {
    const int descriptor = ::mkstemp(path.data());
    if (descriptor < 0) std::abort();
    ::close(descriptor);
    std::ofstream(path) << std::string(size, 'x');
  }
  ~File() { std::filesystem::remove(path); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::string path = (std::filesystem::temp_directory_path() / "quern-file-XXXXXX").string();
};

TEST(MappedFile, ReadsWhatIsThere) {
  const File file(5000);

  const MappedFile mapped = MappedFile::open(file.path).value();

  ASSERT_EQ(mapped.bytes().size(), 5000U);
  EXPECT_EQ(mapped.bytes()[4999], std::byte{'x'});
  EXPECT_TRUE(mapped.check_unchanged().ok());
}

TEST(MappedFile, S3SurvivesAFileThatIsCutShortMeanwhile) {
  const File file(4 * 4096);
  MappedFile mapped = MappedFile::open(file.path).value();
  ASSERT_EQ(mapped.bytes()[3 * 4096], std::byte{'x'});

  std::filesystem::resize_file(file.path, 4096);
  MappedFile moved;
  moved = std::move(mapped);

  EXPECT_EQ(moved.bytes()[0], std::byte{'x'});
  EXPECT_EQ(moved.bytes()[2 * 4096], std::byte{0});
  EXPECT_EQ(moved.bytes()[4 * 4096 - 1], std::byte{0});
  ASSERT_FALSE(moved.check_unchanged().ok());
  EXPECT_EQ(moved.check_unchanged().error().message, file.path + ": the file changed while it was read");
}

TEST(MappedFile, S3TellsThatAFileWasWrittenMeanwhile) {
  const File file(100);
  const MappedFile mapped = MappedFile::open(file.path).value();

  std::filesystem::last_write_time(file.path, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));

  EXPECT_FALSE(mapped.check_unchanged().ok());
}

TEST(MappedFileDeathTest, OtherBusErrorsStillEndTheProcess) {
  const File file(100);
  const MappedFile mapped = MappedFile::open(file.path).value();

  EXPECT_DEATH(std::raise(SIGBUS), "");
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  EXPECT_FALSE(MappedFile::open("/dev/zero").ok());
  EXPECT_FALSE(MappedFile::open("/").ok());
  EXPECT_FALSE(MappedFile::open("/no/such/file").ok());
}

}  // namespace
}  // namespace quern
