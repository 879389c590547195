// Pulls over the loopback interface, by many connections at once, from a hub that is busy now and then.
#include "hub/pull.h"

#include <atomic>
#include <charconv>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "base/file.h"
#include "base/testing.h"
#include "hub/digest.h"
#include "net/http_server.h"

namespace quern {
namespace {

using testing::Folder;
using ::testing::HasSubstr;

const std::string kCommit(40, 'c');

/// A hub with one repository, "org/big", whose only file is `content`.
class TestHub {
 public:
  explicit TestHub(std::string content) : content_(std::move(content)) {
    HttpServerOptions options;
    options.shards = 2;
    auto started =
        HttpServer::start(options, [this](const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
          responder->send(answer(request));
        });
    EXPECT_TRUE(started.ok());
    server_ = std::move(started).value();
    options_.endpoint = fmt::format("http://127.0.0.1:{}", server_->port());
    options_.cache = folder_.path() + "/hub";
    options_.range_bytes = 10'000;
  }

  const HubOptions& options() const { return options_; }
  int requests() const { return requests_; }
  /// Every so many requests are answered with 503.
  void set_busy(int every) { busy_every_ = every; }

 private:
  HttpResponse answer(const HttpRequest& request) {
    const int number = ++requests_;
    if (busy_every_ > 0 && number % busy_every_ == 0) return {503, {{"Retry-After", "0"}}, ""};
    if (request.target.starts_with("/api/models/org/big/revision/main"))
      return {200,
              {},
              fmt::format(R"({{"sha": "{}", "siblings": [{{"rfilename": "big-Q8_0.gguf", "size": {},
                                   "lfs": {{"sha256": "{}", "size": {}}}}}]}})",
                          kCommit, content_.size(), text_digest(content_), content_.size())};
    if (request.target.starts_with("/org/big/resolve/")) return {302, {{"Location", "/storage/x?signed=1"}}, ""};
    if (!request.target.starts_with("/storage/")) return {404, {}, ""};
    const std::string_view range = request.header("range");
    size_t first = 0, last = 0;
    const size_t dash = range.find('-');
    std::from_chars(range.data() + 6, range.data() + dash, first);
    std::from_chars(range.data() + dash + 1, range.data() + range.size(), last);
    return {206,
            {{"Content-Range", fmt::format("bytes {}-{}/{}", first, last, content_.size())}},
            content_.substr(first, last - first + 1)};
  }

  const std::string content_;
  const Folder folder_;
  HubOptions options_;
  std::atomic<int> requests_ = 0;
  std::atomic<int> busy_every_ = 0;
  std::unique_ptr<HttpServer> server_;
};

std::string some_content(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 2654435761U >> 13U);
  return text;
}

const ModelName kName{"org/big", ""};

TEST(Pull, BringsRangesByManyConnections) {
  const std::string content = some_content(1'234'567);
  TestHub hub(content);
  hub.set_busy(10);
  int64_t told = 0;

  const auto model = pull_model(hub.options(), kName, "main", [&](const FileProgress& progress) {
    EXPECT_GE(progress.completed, told);
    told = progress.completed;
    EXPECT_EQ(progress.total, 1'234'567);
    return true;
  });

  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(told, 1'234'567);
  EXPECT_EQ(read_file(model->path()).value(), content);
}

TEST(Pull, StopsWhenItIsToldToAndGoesOnLater) {
  const std::string content = some_content(2'000'000);
  TestHub hub(content);

  const auto stopped =
      pull_model(hub.options(), kName, "main", [](const FileProgress& progress) { return progress.completed == 0; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_THAT(stopped.error().message, HasSubstr("what has come is kept"));
  EXPECT_FALSE(HubCache(hub.options().cache).find(kName));

  const auto model = pull_model(hub.options(), kName, "main", {});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(read_file(model->path()).value(), content);
  const int before = hub.requests();
  ASSERT_TRUE(pull_model(hub.options(), kName, "main", {}).ok());
  EXPECT_EQ(hub.requests(), before + 1);  // the listing
}

TEST(Pull, EndsWhenTheHubStaysBusy) {
  TestHub hub(some_content(100'000));
  hub.set_busy(1);
  HubOptions options = hub.options();
  options.retries = 1;

  const auto model = pull_model(options, kName, "main", {});

  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message, HasSubstr("is in trouble (status 503)"));
}

}  // namespace
}  // namespace quern
