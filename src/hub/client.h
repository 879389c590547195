// HubClient: requests to a server that speaks the Hugging Face hub's API, through its redirects. Thread: the one that
// uses it; cancel() from any.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/guarded.h"
#include "base/result.h"
#include "hub/cache.h"
#include "net/http_client.h"

namespace quern {

/// Where models come from and go to.
struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  std::string token;     // goes to the endpoint's own origin and nowhere else
  std::string cache;     // the folder that Hugging Face's tools use
  bool offline = false;  // ask no server
  int connections = 8;
  int retries = 5;                          // without a byte of progress between them
  int64_t range_bytes = int64_t{64} << 20;  // larger files come in such pieces
};

/// What the environment says: HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE,
/// XDG_CACHE_HOME.
HubOptions hub_options_from_environment();

/// What the hub says about a repository at a revision.
struct HubListing {
  std::string commit;
  std::vector<HubFile> files;
};

class HubClient {
 public:
  struct Answer {
    HttpResponse response;
    HttpUrl from;  // who answered in the end
  };

  HubClient(const HubOptions& options, HttpUrl endpoint) : options_(options), endpoint_(std::move(endpoint)) {}

  /// GET or HEAD, following redirects; the error is one of the network, and trying again may help.
  Result<Answer> ask(const std::string& method, HttpUrl url, const HttpHeaders& headers, const HttpReading& reading);
  /// The address of a file.
  HttpUrl file_url(const std::string& repository, const std::string& revision, const std::string& path) const;
  /// The address of a repository's listing.
  HttpUrl listing_url(const std::string& repository, const std::string& revision) const;
  /// Why an answer is no success, and what to do.
  Error explain(const HttpResponse& response, const std::string& repository, const std::string& what) const;

  /// Any thread: the call in progress and all later ones fail soon.
  void cancel();

 private:
  Result<HttpResponse> send(const HttpRequest& request, const HttpUrl& url, const HttpReading& reading);

  struct Connections {
    std::map<std::string, std::shared_ptr<HttpClient>> by_origin;
    bool cancelled = false;
  };
  const HubOptions options_;
  const HttpUrl endpoint_;
  Guarded<Connections> connections_;
};

/// Whether to try again: the server is busy or in trouble.
bool is_passing(int status);

/// The value of a header in an answer (names are in lower case), or empty.
std::string header_of(const HttpResponse& response, std::string_view name);

/// Reads a listing; refuses what could not be what it says: names that lead elsewhere, digests that are none.
Result<HubListing> parse_listing(const std::string& text, const std::string& repository);

}  // namespace quern
