// Names of models and files, which files make a model, the cache's layout, and files that arrive in pieces.
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/testing.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "hub/digest.h"
#include "hub/part_file.h"

namespace quern {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::Folder;
using ::testing::HasSubstr;

const std::string kCommit(40, 'a');
const std::string kDigest(64, 'b');

TEST(ModelName, TakesWhatPeopleWrite) {
  EXPECT_EQ(parse_model_name("Qwen/Qwen3-0.6B").value().repository, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(parse_model_name("hf.co/a/b:Q4_K_M").value().text(), "a/b:Q4_K_M");
  EXPECT_EQ(parse_model_name("https://huggingface.co/a/b").value().text(), "a/b");
  EXPECT_EQ(parse_model_name("a/b:latest").value().text(), "a/b");
  EXPECT_EQ(parse_model_name("a/b:sub/x.gguf").value().variant, "sub/x.gguf");
}

TEST(ModelName, RefusesWhatIsNone) {
  for (const char* name : {"", "a", "/a/b", "a/", "a/b/c", "a/b:", "a/b:../x", "../a/b", "a/..", "a/.b", "a b/c",
                           "a/b--c", "-a/b", "a/b\n", "a/b:x\\y", "What is 1/2?"}) {
    EXPECT_FALSE(parse_model_name(name).ok()) << name;
  }
}

TEST(SafePath, HasNoWayOut) {
  EXPECT_TRUE(is_safe_path("a.txt"));
  EXPECT_TRUE(is_safe_path("a/b/c..d"));
  for (const char* path : {"", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a\\b", "a\tb", "c:d"}) {
    EXPECT_FALSE(is_safe_path(path)) << path;
  }
  EXPECT_FALSE(is_safe_path(std::string_view("a\0b", 3)));
  EXPECT_FALSE(is_safe_path(std::string(300, 'a')));
  EXPECT_FALSE(is_safe_path("1/2/3/4/5/6/7/8/9"));
}

TEST(Quantization, IsTheEndOfAFilesName) {
  for (const auto& [file, expected] :
       std::vector<std::pair<std::string, std::string>>{{"Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M"},
                                                        {"SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"},
                                                        {"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"},
                                                        {"Q8_0/x-Q8_0-00001-of-00003.gguf", "Q8_0"},
                                                        {"m-UD-IQ2_XXS.gguf", "UD-IQ2_XXS"},
                                                        {"gpt-oss-20b-mxfp4.gguf", "MXFP4"},
                                                        {"x-BF16.gguf", "BF16"},
                                                        {"ggml-model-f16.gguf", "F16"},
                                                        {"x-TQ1_0.gguf", "TQ1_0"},
                                                        {"Qwen3-Q8-chat.gguf", ""},
                                                        {"model.gguf", ""}}) {
    EXPECT_EQ(quantization_in(file), expected) << file;
  }
}

std::vector<HubFile> files_called(const std::vector<std::string>& paths) {
  std::vector<HubFile> files;
  for (const std::string& path : paths) files.push_back({path, 1, kDigest});
  return files;
}

std::vector<std::string> chosen(const std::string& name, const std::vector<std::string>& paths) {
  const auto model = choose_model(parse_model_name(name).value(), files_called(paths));
  if (!model.ok()) return {model.error().message};
  std::vector<std::string> names;
  for (const HubFile& file : model->files) names.push_back(file.path);
  return names;
}

TEST(ModelFiles, PreferFourBitsAmongGgufFiles) {
  const std::vector<std::string> paths = {"x-F16.gguf", "x-Q2_K.gguf", "x-Q4_K_M.gguf", "x-Q8_0.gguf",
                                          "mmproj-x-Q4_K_M.gguf"};
  EXPECT_THAT(chosen("a/b", paths), ElementsAre("x-Q4_K_M.gguf"));
  EXPECT_THAT(chosen("a/b:q8_0", paths), ElementsAre("x-Q8_0.gguf"));
  EXPECT_THAT(chosen("a/b:x-F16.gguf", paths), ElementsAre("x-F16.gguf"));
  EXPECT_THAT(chosen("a/b:Q3_K_S", paths), ElementsAre(HasSubstr("there are: Q4_K_M, Q8_0, F16, Q2_K")));
}

TEST(ModelFiles, TakeAllPartsOrNone) {
  EXPECT_THAT(chosen("a/b", {"x-Q4_0-00001-of-00002.gguf", "x-Q4_0-00002-of-00002.gguf"}),
              ElementsAre("x-Q4_0-00001-of-00002.gguf", "x-Q4_0-00002-of-00002.gguf"));
  EXPECT_THAT(chosen("a/b", {"x-Q4_0-00001-of-00002.gguf"}), ElementsAre(HasSubstr("no complete model")));
  EXPECT_THAT(chosen("a/b", {"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"}),
              ElementsAre(HasSubstr("no complete model")));
}

TEST(ModelFiles, AreWhatTheLoaderReads) {
  EXPECT_THAT(chosen("a/b", {"config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json",
                             "model.fp16.safetensors", "pytorch_model.bin", "1_Pooling/config.json", "x-Q4_0.gguf"}),
              ElementsAre("model.safetensors", "config.json", "tokenizer.json", "1_Pooling/config.json"));
  EXPECT_THAT(chosen("a/b", {"config.json", "model.safetensors", "additional_chat_templates/rag.jinja", "rag.jinja"}),
              ElementsAre("model.safetensors", "config.json", "additional_chat_templates/rag.jinja"));
  EXPECT_THAT(chosen("a/b", {"config.json", "pytorch_model.bin"}), ElementsAre(HasSubstr("can run code")));
}

TEST(ModelFiles, OfOneQuantizationAreToldApartByTheirNames) {
  const std::vector<std::string> paths = {"one-Q4_0.gguf", "two-Q4_0.gguf"};
  EXPECT_THAT(chosen("a/b:two-Q4_0.gguf", paths), ElementsAre("two-Q4_0.gguf"));
  EXPECT_THAT(chosen("a/b:Q4_0", paths), ElementsAre("one-Q4_0.gguf"));
}

TEST(Digest, IsThatOfSha256sumAndGit) {
  const Folder folder;
  const int file = ::open(folder.write("a", "hello\n").c_str(), O_RDONLY);
  EXPECT_EQ(file_digest(file, 6, std::string(64, '0')).value(),
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  EXPECT_EQ(file_digest(file, 6, std::string(40, '0')).value(), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_FALSE(file_digest(file, 7, kDigest).ok());
  ::close(file);
}

TEST(PartFile, RemembersWhatCame) {
  const Folder folder;
  const std::string path = folder.path() + "/x.part";
  {
    const PartFile part = PartFile::open(path, 10, 4).value();
    ASSERT_EQ(part.ranges(), 3);
    ASSERT_TRUE(part.write(4, "efg").ok() && part.note(1, 3).ok());
  }
  PartFile again = PartFile::open(path, 10, 4).value();
  EXPECT_EQ(again.noted(0).value(), 0);
  EXPECT_EQ(again.noted(1).value(), 3);
  ASSERT_TRUE(again.write(0, "abcd").ok() && again.write(7, "hij").ok());
  ASSERT_TRUE(again.finish(folder.path() + "/x").ok());
  EXPECT_EQ(read_file(folder.path() + "/x").value(), "abcdefghij");
}

TEST(PartFile, BeginsAgainWhenItIsOfAnotherKind) {
  const Folder folder;
  const std::string path = folder.path() + "/x.part";
  ASSERT_TRUE(PartFile::open(path, 10, 4).value().note(1, 3).ok());
  EXPECT_EQ(PartFile::open(path, 10, 5).value().noted(1).value(), 0);
  folder.write("x.part", "something else that is longer than the file was");
  EXPECT_EQ(PartFile::open(path, 10, 5).value().noted(1).value(), 0);
  fs::create_symlink("/etc/passwd", folder.path() + "/y.part");
  EXPECT_FALSE(PartFile::open(folder.path() + "/y.part", 10, 5).ok());
}

/// A cache with the files of one repository, published.
struct Filled {
  Folder folder;
  HubCache cache{folder.path()};

  void add(const std::string& repository, const std::vector<std::string>& paths, const std::string& commit = kCommit) {
    ASSERT_TRUE(cache.prepare(repository).ok());
    std::vector<HubFile> files;
    for (const std::string& path : paths) {
      files.push_back({path, static_cast<int64_t>(path.size()), text_digest(path)});
      ASSERT_TRUE(replace_file(cache.blob(repository, files.back().digest), path).ok());
    }
    ASSERT_TRUE(cache.publish(repository, "main", commit, files).ok());
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const CachedModel& model : cache.models()) all.push_back(model.name.text());
    return all;
  }
};

TEST(HubCache, FindsWhatItPublished) {
  Filled filled;
  filled.add("a/b", {"config.json", "model.safetensors", "x-Q4_0.gguf", "sub/y-Q8_0.gguf"});

  EXPECT_THAT(filled.names(), ElementsAre("a/b", "a/b:Q4_0", "a/b:Q8_0"));
  const auto found = filled.cache.find(parse_model_name("a/b:q8_0").value());
  ASSERT_TRUE(found);
  EXPECT_EQ(read_file(found->path()).value(), "sub/y-Q8_0.gguf");
  EXPECT_EQ(found->files.files[0].digest, text_digest("sub/y-Q8_0.gguf"));
  EXPECT_TRUE(filled.cache.find(parse_model_name("a/b").value(), kCommit));
  EXPECT_FALSE(filled.cache.find(parse_model_name("a/b").value(), "other"));
}

TEST(HubCache, RemovesAModelAndNotItsNeighbours) {
  Filled filled;
  filled.add("a/b", {"x-Q4_0.gguf", "x-Q8_0.gguf"});
  filled.add("a/c", {"x-Q4_0.gguf"});

  ASSERT_TRUE(filled.cache.remove(*filled.cache.find(parse_model_name("a/b:Q4_0").value())).ok());
  EXPECT_THAT(filled.names(), ElementsAre("a/b:Q8_0", "a/c:Q4_0"));
  EXPECT_FALSE(file_exists(filled.cache.blob("a/b", text_digest("x-Q4_0.gguf"))));
  ASSERT_TRUE(filled.cache.remove(*filled.cache.find(parse_model_name("a/b").value())).ok());
  EXPECT_THAT(filled.names(), ElementsAre("a/c:Q4_0"));
}

TEST(HubCache, LocksAreHeldByOne) {
  Filled filled;
  ASSERT_TRUE(filled.cache.prepare("a/b").ok());
  const std::string path = filled.cache.lock("a/b", kDigest);
  {
    const auto lock = FileLock::try_lock(path).value();
    ASSERT_TRUE(lock);
    EXPECT_FALSE(FileLock::try_lock(path).value());
  }
  EXPECT_TRUE(FileLock::try_lock(path).value());
}

TEST(Listing, IsReadAndChecked) {
  const std::string good = fmt::format(
      R"({{"sha": "{}", "siblings": [{{"rfilename": "a", "size": 3, "blobId": "{}"}},
          {{"rfilename": "b/c", "lfs": {{"sha256": "{}", "size": 9}}}}, {{"rfilename": "d"}}]}})",
      kCommit, kCommit, kDigest);
  const HubListing listing = parse_listing(good, "a/b").value();
  EXPECT_EQ(listing.commit, kCommit);
  EXPECT_EQ(listing.files[1].digest, kDigest);
  EXPECT_EQ(listing.files[1].bytes, 9);
  EXPECT_EQ(listing.files[2].bytes, -1);
  for (const std::string text :
       {"", "[]", "{}", R"({"sha": "x", "siblings": []})",
        R"({"sha": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "siblings": [{"rfilename": "../x"}]})",
        R"({"sha": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "siblings": [{"rfilename": 1}]})"}) {
    EXPECT_FALSE(parse_listing(text, "a/b").ok()) << text;
  }
}

}  // namespace
}  // namespace quern
