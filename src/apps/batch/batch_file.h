// The two files of `quern batch`: requests as lines of OpenAI's batch API, and their answers. Thread: see each.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "base/json.h"
#include "base/result.h"
#include "net/http.h"

namespace quern {

/// {"custom_id": ..., "method": "POST", "url": "/v1/...", "body": {...}}
struct BatchRequest {
  std::string custom_id;
  std::string url;
  std::string body;
  std::optional<std::string> wrong;  // why it cannot be sent
};
/// An error for what has no name by which its answer could be found.
Result<BatchRequest> parse_batch_request(std::string_view line);

/// Requests in the order of the file, without those that are answered. next(): any thread.
class BatchInput {
 public:
  /// Looks at every line once, so that nothing is run for a file that is wrong: each must have a `custom_id` of its
  /// own.
  static Result<BatchInput> open(const std::string& path, std::unordered_set<std::string> answered);

  int64_t total() const { return total_; }        // requests in the file
  int64_t answered() const { return answered_; }  // of them, before this run
  /// Nothing at the end of the file.
  std::optional<BatchRequest> next();

 private:
  BatchInput() = default;

  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // guards file_
  std::ifstream file_;
  std::unordered_set<std::string> skipped_;
  int64_t total_ = 0;
  int64_t answered_ = 0;
};

/// Answers, one line each as they come. Any thread.
class BatchOutput {
 public:
  /// Keeps what an earlier run has written, but for a last line that it did not finish.
  static Result<BatchOutput> open(const std::string& path);

  /// The `custom_id`s in the file when it was opened.
  std::unordered_set<std::string> take_answered() { return std::move(answered_); }
  Status answer(const BatchRequest& request, const HttpResponse& response);
  Status fail(const BatchRequest& request, std::string_view code, std::string_view message);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  BatchOutput() = default;
  Status write(const std::string& line);

  std::string path_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // guards file_
  std::unique_ptr<std::FILE, Close> file_;
  std::unordered_set<std::string> answered_;
};

}  // namespace quern
