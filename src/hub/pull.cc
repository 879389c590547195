#include "hub/pull.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <thread>

#include "hub/download.h"

namespace quern {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{30'000};
constexpr int64_t kLargestListing = int64_t{64} << 20;

/// Asks until there is an answer that is not of a busy server.
Result<HubClient::Answer> ask_patiently(HubClient& client, const HubOptions& options, const std::string& method,
                                        const HttpUrl& url) {
  for (int failures = 0;; ++failures) {
    auto answer = client.ask(method, url, {}, HttpReading{kPatience, kPatience, kLargestListing});
    if (answer.ok() && !is_passing(answer->response.status)) return answer;
    if (failures >= options.retries) return answer;
    std::this_thread::sleep_for(milliseconds(250 << std::min(failures, 6)));
  }
}

Error unreachable(const HubOptions& options, const ModelName& name, const Error& error) {
  return Error{fmt::format("{} is not in the cache, and {} cannot be reached: {}", name.text(), options.endpoint,
                           error.message)};
}

Result<HubListing> list_repository(HubClient& client, const HubOptions& options, const ModelName& name,
                                   const std::string& revision) {
  const auto answer = ask_patiently(client, options, "GET", client.listing_url(name.repository, revision));
  if (!answer.ok()) return unreachable(options, name, answer.error());
  if (answer->response.status != 200) return client.explain(answer->response, name.repository, name.repository);
  return parse_listing(answer->response.body, name.repository);
}

std::string bare_etag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  return etag;
}

/// Asks for the size and the digest of a file whose listing has none.
Status describe_file(HubClient& client, const HubOptions& options, const std::string& repository,
                     const std::string& commit, HubFile* file) {
  if (file->bytes >= 0 && !file->digest.empty()) return {};
  const auto answer = ask_patiently(client, options, "HEAD", client.file_url(repository, commit, file->path));
  if (!answer.ok()) return answer.error();
  const HttpResponse& head = answer->response;
  if (head.status >= 400) return client.explain(head, repository, fmt::format("{} of {}", file->path, repository));
  const std::string large = header_of(head, "x-linked-etag"), size = header_of(head, "x-linked-size");
  file->digest = bare_etag(large.empty() ? header_of(head, "etag") : large);
  const std::string& length = size.empty() ? header_of(head, "content-length") : size;
  file->bytes = length.empty() ? -1 : std::atoll(length.c_str());
  if (file->bytes < 0 || !is_digest(file->digest)) {
    return Error{fmt::format("{}: {} says neither how large it is nor what its digest is; it cannot be checked",
                             file->path, options.endpoint)};
  }
  return {};
}

}  // namespace

Result<CachedModel> pull_model(const HubOptions& options, const ModelName& name, const std::string& revision,
                               const OnFileProgress& on_progress) {
  if (!is_revision(revision))
    return Error{fmt::format("'{}' is no revision: name a branch, a tag or a commit", revision)};
  if (options.offline) {
    return Error{fmt::format("{} is not in the cache, and HF_HUB_OFFLINE is set: unset it to pull", name.text())};
  }
  ASSIGN_OR_RETURN(const HttpUrl endpoint, parse_url(options.endpoint));
  const HubCache cache(options.cache);
  HubClient client(options, endpoint);
  ASSIGN_OR_RETURN(const HubListing listing, list_repository(client, options, name, revision));
  ASSIGN_OR_RETURN(ModelFiles model, choose_model(name, listing.files));
  for (HubFile& file : model.files) TRY(describe_file(client, options, name.repository, listing.commit, &file));
  Download download(options, endpoint, cache, name.repository, listing.commit, model.files);
  TRY(download.run(on_progress));
  TRY(cache.publish(name.repository, revision, listing.commit, model.files));
  const ModelName full{name.repository, model.variant};
  return CachedModel{full, listing.commit, cache.snapshot(name.repository, listing.commit), std::move(model)};
}

}  // namespace quern
