#include "hub/client.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"

namespace quern {
namespace {

constexpr int kMostRedirects = 5;
constexpr size_t kMostFiles = 100'000;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_true(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text == "1" || text == "true" || text == "yes" || text == "on";
}

/// `text` as a part of a path or of a query.
std::string escaped(std::string_view text, std::string_view also) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("-_.~").find(c) != std::string_view::npos ||
                       also.find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

/// Where an answer sends us; relative to where it came from.
Result<HttpUrl> target_of(const HttpResponse& response, const HttpUrl& from) {
  const std::string location = header_of(response, "location");
  if (location.empty()) return Error{fmt::format("{} redirects to nowhere", from.origin())};
  if (location.starts_with("//")) return parse_url((from.tls ? "https:" : "http:") + location);
  if (location.starts_with('/')) {
    ASSIGN_OR_RETURN(HttpUrl url, parse_url(from.origin()));
    url.path = location;
    return url;
  }
  ASSIGN_OR_RETURN(HttpUrl url, parse_url(location));
  if (from.tls && !url.tls)
    return Error{fmt::format("{} redirects to {}, which is not encrypted", from.origin(), url.origin())};
  return url;
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 300)) out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  return out;
}

}  // namespace

HubOptions hub_options_from_environment() {
  HubOptions options;
  if (const std::string endpoint = environment("HF_ENDPOINT"); !endpoint.empty()) options.endpoint = endpoint;
  const std::string user_cache = environment("XDG_CACHE_HOME");
  std::string home = environment("HF_HOME");
  if (home.empty()) home = (user_cache.empty() ? environment("HOME") + "/.cache" : user_cache) + "/huggingface";
  if (home.starts_with("~/")) home = environment("HOME") + home.substr(1);
  options.cache = environment("HF_HUB_CACHE");
  if (options.cache.empty()) options.cache = environment("HUGGINGFACE_HUB_CACHE");
  if (options.cache.empty()) options.cache = home + "/hub";
  if (options.cache.starts_with("~/")) options.cache = environment("HOME") + options.cache.substr(1);
  options.token = environment("HF_TOKEN");
  if (options.token.empty()) options.token = environment("HUGGING_FACE_HUB_TOKEN");
  if (options.token.empty()) {
    const std::string named = environment("HF_TOKEN_PATH");
    if (auto text = read_file(named.empty() ? home + "/token" : named, 4096); text.ok()) options.token = *text;
  }
  std::erase_if(options.token, [](char c) { return static_cast<unsigned char>(c) <= ' '; });
  options.offline = is_true(environment("HF_HUB_OFFLINE")) || is_true(environment("TRANSFORMERS_OFFLINE"));
  return options;
}

bool is_passing(int status) { return status == 408 || status == 429 || status >= 500; }

std::string header_of(const HttpResponse& response, std::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

HttpUrl HubClient::file_url(const std::string& repository, const std::string& revision, const std::string& path) const {
  HttpUrl url = endpoint_;
  url.path += fmt::format("/{}/resolve/{}/{}", repository, escaped(revision, ""), escaped(path, "/"));
  return url;
}

HttpUrl HubClient::listing_url(const std::string& repository, const std::string& revision) const {
  HttpUrl url = endpoint_;
  url.path += fmt::format("/api/models/{}/revision/{}?blobs=true", repository, escaped(revision, ""));
  return url;
}

Result<HubClient::Answer> HubClient::ask(const std::string& method, HttpUrl url, const HttpHeaders& headers,
                                         const HttpReading& reading) {
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    HttpRequest request{method, url.path.starts_with('/') ? url.path : "/" + url.path, headers, "", ""};
    request.headers.emplace_back("user-agent", "quern");
    request.headers.emplace_back("accept-encoding", "identity");
    if (!options_.token.empty() && url.origin() == endpoint_.origin())
      request.headers.emplace_back("authorization", "Bearer " + options_.token);
    ASSIGN_OR_RETURN(HttpResponse response, send(request, url, reading));
    constexpr std::array moved = {301, 302, 303, 307, 308};
    // A hub describes a large file in the redirect itself.
    const bool described = method == "HEAD" && !header_of(response, "x-linked-etag").empty();
    if (std::find(moved.begin(), moved.end(), response.status) == moved.end() || described)
      return Answer{std::move(response), std::move(url)};
    ASSIGN_OR_RETURN(url, target_of(response, url));
  }
  return Error{fmt::format("{} redirects more than {} times", endpoint_.origin(), kMostRedirects)};
}

Result<HttpResponse> HubClient::send(const HttpRequest& request, const HttpUrl& url, const HttpReading& reading) {
  const auto client = connections_.with([&](Connections& all) {
    if (all.cancelled) return std::shared_ptr<HttpClient>();
    auto& known = all.by_origin[url.origin()];
    if (!known) known = std::make_shared<HttpClient>(url);
    return known;
  });
  if (!client) return Error{"the pull was stopped"};
  return client->send(request, reading);
}

void HubClient::cancel() {
  connections_.with([](Connections& all) {
    all.cancelled = true;
    for (const auto& [origin, client] : all.by_origin) client->cancel();
  });
}

Error HubClient::explain(const HttpResponse& response, const std::string& repository, const std::string& what) const {
  const std::string hub = endpoint_.host;
  const std::string code = header_of(response, "x-error-code");
  std::string said = one_line(header_of(response, "x-error-message"));
  if (!said.empty()) said = fmt::format(" ({})", said);
  const int status = response.status;
  const bool gated = code == "GatedRepo" || (status == 403 && code.empty());
  if (gated && !options_.token.empty()) {
    return Error{fmt::format("{} is gated: accept its terms at {}/{} with the account of your token, then pull again{}",
                             repository, options_.endpoint, repository, said)};
  }
  if (status == 401 || gated) {
    if (options_.token.empty()) {
      return Error{
          fmt::format("{} has no {} for everybody: check the name, or set HF_TOKEN if it is private or gated{}", hub,
                      repository, said)};
    }
    return Error{
        fmt::format("{} does not accept the token for {}: check HF_TOKEN and the name{}", hub, repository, said)};
  }
  if (status == 403) return Error{fmt::format("{} refuses {}: the token may not read it{}", hub, repository, said)};
  if (code == "RevisionNotFound")
    return Error{fmt::format("{} has no such revision; see --revision{}", repository, said)};
  if (status == 404) return Error{fmt::format("{} has no {}: check the name{}", hub, what, said)};
  if (status == 429) {
    return Error{fmt::format("{} has had too many requests from here: wait some minutes, or set HF_TOKEN for more{}",
                             hub, said)};
  }
  if (status >= 500)
    return Error{
        fmt::format("{} is in trouble (status {}): try again later; what has come is kept{}", hub, status, said)};
  return Error{fmt::format("{} answers {} to the request for {}{}", hub, status, what, said)};
}

Result<HubListing> parse_listing(const std::string& text, const std::string& repository) {
  const auto json = Json::parse(text);
  const Error unreadable{fmt::format("the listing of {} is not what a hub sends; is the endpoint right?", repository)};
  if (!json.ok() || !json->is_object()) return unreadable;
  HubListing listing;
  listing.commit = json->string("sha").value_or("");
  const Json* files = json->find("siblings");
  if (!is_digest(listing.commit) || files == nullptr || !files->is_array() || files->items().size() > kMostFiles)
    return unreadable;
  for (const Json& entry : files->items()) {
    HubFile file;
    file.path = entry.string("rfilename").value_or("");
    if (!is_safe_path(file.path)) {
      return Error{
          fmt::format("the listing of {} has a file that is called '{}', which could lead out of its folder; "
                      "nothing is pulled from there",
                      repository, one_line(file.path))};
    }
    file.bytes = entry.integer("size").value_or(-1);
    file.digest = entry.string("blobId").value_or("");
    if (const Json* large = entry.present("lfs")) {
      file.digest = large->string("sha256").value_or(large->string("oid").value_or(""));
      file.bytes = large->integer("size").value_or(file.bytes);
    }
    if (file.bytes < -1 || (!file.digest.empty() && !is_digest(file.digest))) return unreadable;
    listing.files.push_back(std::move(file));
  }
  return listing;
}

}  // namespace quern
