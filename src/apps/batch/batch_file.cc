#include "apps/batch/batch_file.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

#include "base/file.h"
#include "base/random.h"

namespace quern {
namespace {

constexpr std::string_view kUrls[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                      "/v1/embeddings",       "/v1/score",       "/v1/rerank",
                                      "/v1/messages"};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

std::string new_id() { return "batch_req_" + random_hex(); }

}  // namespace

Result<BatchRequest> parse_batch_request(std::string_view line) {
  auto parsed = Json::parse(line);
  if (!parsed.ok()) return Error{parsed.error().message};
  const auto id = parsed->string("custom_id");
  if (!id || id->empty()) return Error{"there is no 'custom_id', a string by which its answer is found"};
  BatchRequest request{*id, parsed->string("url").value_or(""), {}, {}};
  const Json* const body = parsed->present("body");
  if (parsed->string("method").value_or("POST") != "POST") {
    request.wrong = "'method' must be POST";
  } else if (std::ranges::find(kUrls, request.url) == std::end(kUrls)) {
    request.wrong = fmt::format("'url' must be one of {}", fmt::join(kUrls, ", "));
  } else if (body == nullptr || !body->is_object()) {
    request.wrong = "'body' must be an object: what would be sent to the url";
  } else if (body->boolean("stream").value_or(false)) {
    request.wrong = "'stream' cannot be true in a batch";
  } else {
    request.body = body->dump();
  }
  return request;
}

Result<BatchInput> BatchInput::open(const std::string& path, std::unordered_set<std::string> answered) {
  BatchInput input;
  if (is_directory(path)) return Error{fmt::format("{}: is a folder, not a file of requests", path)};
  input.file_.open(path);
  if (!input.file_) return file_error(path);
  std::unordered_set<std::string> seen;
  int64_t number = 0;
  for (std::string line; std::getline(input.file_, line);) {
    ++number;
    if (is_blank(line)) continue;
    auto request = parse_batch_request(line);
    if (!request.ok()) return Error{fmt::format("{} line {}: {}", path, number, request.error().message)};
    if (answered.contains(request->custom_id)) ++input.answered_;
    if (!seen.insert(std::move(request->custom_id)).second)
      return Error{fmt::format("{} line {}: an earlier line has the same 'custom_id'", path, number)};
    ++input.total_;
  }
  if (input.file_.bad()) return file_error(path);
  input.file_.clear();
  input.file_.seekg(0);
  input.skipped_ = std::move(answered);
  return input;
}

std::optional<BatchRequest> BatchInput::next() {
  const std::lock_guard lock(*mutex_);
  for (std::string line; std::getline(file_, line);) {
    if (is_blank(line)) continue;
    auto request = parse_batch_request(line);
    if (request.ok() && !skipped_.contains(request->custom_id)) return std::move(request).value();
  }
  return std::nullopt;
}

Result<BatchOutput> BatchOutput::open(const std::string& path) {
  BatchOutput output;
  output.path_ = path;
  int64_t whole = 0;
  if (std::ifstream before(path); before) {
    int64_t number = 0;
    for (std::string line; std::getline(before, line) && !before.eof();) {
      ++number;
      whole += static_cast<int64_t>(line.size()) + 1;
      if (is_blank(line)) continue;
      const auto parsed = Json::parse(line);
      const auto id = parsed.ok() ? parsed->string("custom_id") : std::nullopt;
      if (!id) return Error{fmt::format("{} line {}: is no answer of a batch; name another file", path, number)};
      output.answered_.insert(*id);
    }
  }
  output.file_.reset(std::fopen(path.c_str(), "ab"));
  if (!output.file_) return file_error(path);
  std::error_code failed;
  if (std::filesystem::is_regular_file(path)) std::filesystem::resize_file(path, static_cast<uintmax_t>(whole), failed);
  if (failed) return Error{fmt::format("{}: {}", path, failed.message())};
  return output;
}

Status BatchOutput::answer(const BatchRequest& request, const HttpResponse& response) {
  std::string id;
  for (const auto& [name, value] : response.headers) {
    if (name == "x-request-id") id = value;
  }
  auto body = Json::parse(response.body, 256);
  Json answer;
  answer.set("status_code", response.status).set("request_id", id);
  answer.set("body", body.ok() ? std::move(body).value() : Json(response.body));
  return write(Json()
                   .set("id", new_id())
                   .set("custom_id", request.custom_id)
                   .set("response", std::move(answer))
                   .set("error", nullptr)
                   .dump());
}

Status BatchOutput::fail(const BatchRequest& request, std::string_view code, std::string_view message) {
  return write(Json()
                   .set("id", new_id())
                   .set("custom_id", request.custom_id)
                   .set("response", nullptr)
                   .set("error", Json().set("code", code).set("message", message))
                   .dump());
}

Status BatchOutput::write(const std::string& line) {
  const std::lock_guard lock(*mutex_);
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fputc('\n', file_.get()) == EOF ||
      std::fflush(file_.get()) != 0) {
    return file_error(path_);
  }
  return {};
}

}  // namespace quern
