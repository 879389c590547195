#include "net/http_client.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <charconv>
#include <fmt/format.h>
#include <openssl/x509_vfy.h>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "net/proxy.h"
#include "net/stream.h"

namespace quern {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using Failure = boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

/// As a host stands in a URL.
std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
}

}  // namespace

Result<HttpUrl> parse_url(std::string_view url) {
  HttpUrl out;
  out.tls = url.starts_with("https://");
  if (!out.tls && !url.starts_with("http://"))
    return Error{fmt::format("{}: a URL must start with http:// or https://", url)};
  if (std::any_of(url.begin(), url.end(), [](char c) { return c <= ' ' || c == 127; }))
    return Error{"a URL has no spaces and no control characters"};
  if (out.tls) out.port = 443;
  std::string_view rest = url.substr(url.find("//") + 2);
  const size_t slash = std::min(rest.find('/'), rest.find('?'));
  if (slash != std::string_view::npos) out.path = rest.substr(slash);
  while (out.path.ends_with('/')) out.path.pop_back();
  rest = rest.substr(0, slash);
  // Before an error shows what may be a password.
  if (rest.find('@') != std::string_view::npos) return Error{"a URL with a user name is not taken"};
  const size_t colon = rest.rfind(':');
  if (colon != std::string_view::npos && rest.find(']', colon) == std::string_view::npos) {
    const std::string_view digits = rest.substr(colon + 1);
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
    if (failure != std::errc() || end != digits.data() + digits.size() || out.port < 1 || out.port > 65535) {
      return Error{fmt::format("{}: '{}' is no port", url, digits)};
    }
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  if (rest.empty()) return Error{fmt::format("{}: the URL names no host", url)};
  out.host = rest;
  return out;
}

std::string HttpUrl::origin() const { return fmt::format("{}://{}:{}", tls ? "https" : "http", bracketed(host), port); }

struct HttpClient::State {
  using Parser = http::response_parser<http::buffer_body>;

  std::string host;
  int port = 0;
  bool tls = false;
  Result<std::optional<Proxy>> proxy = std::optional<Proxy>();  // whom to ask instead
  asio::io_context io{1};
  std::optional<Stream> stream;  // while there is a connection
  int64_t heard_us = 0;          // when the last byte came
  boost::beast::flat_buffer inbox;
  bool answered = false;  // the header of an answer has come
  bool late = false;      // time is up
  std::atomic<bool> cancelled{false};

  /// The stream itself goes when nothing uses it any more.
  void close() {
    if (stream) stream->close();
    inbox.clear();
  }
  bool open() { return stream && stream->socket().is_open(); }

  /// Lets the call run until it ends or its time is up, and says which time that was.
  std::chrono::milliseconds wait(const HttpReading& reading) {
    using std::chrono::milliseconds;
    const int64_t start_us = now_us();
    while (!io.stopped()) {
      milliseconds left = reading.timeout - milliseconds((now_us() - start_us) / 1000);
      if (left.count() <= 0) return reading.timeout;
      if (reading.quiet.count() > 0) {
        const milliseconds quiet_left = reading.quiet - milliseconds((now_us() - heard_us) / 1000);
        if (quiet_left.count() <= 0) return reading.quiet;
        left = std::min(left, quiet_left);
      }
      io.run_for(left);
    }
    return reading.timeout;
  }

  asio::awaitable<Status> connect() {
    if (open()) co_return Status();
    inbox.clear();
    if (!proxy.ok()) co_return proxy.error();
    const Status reached = *proxy ? co_await reach((*proxy)->url.host, (*proxy)->url.port) : co_await reach(host, port);
    if (!reached.ok() || !tls) co_return reached;
    if (*proxy) {
      const Status through = co_await tunnel();
      if (!through.ok()) co_return through;
    }
    co_return co_await encrypt();
  }

  /// A connection with that machine, nothing else. By value: the names outlive the waiting.
  asio::awaitable<Status> reach(std::string name, int at) {
    Failure no_number;
    const auto address = asio::ip::make_address(name, no_number);
    tcp::resolver::results_type endpoints;
    if (no_number) {
      tcp::resolver resolver(io);
      const auto [unresolved, found] = co_await resolver.async_resolve(name, std::to_string(at), kTuple);
      if (unresolved) co_return Error{fmt::format("cannot resolve {}: {}", name, unresolved.message())};
      endpoints = found;
    } else {
      endpoints = tcp::resolver::results_type::create(tcp::endpoint(address, static_cast<uint16_t>(at)), name, "");
    }
    stream.emplace(tcp::socket(io));
    const auto [failure, endpoint] = co_await asio::async_connect(stream->socket(), endpoints, kTuple);
    if (failure) co_return Error{fmt::format("cannot connect to {}:{}: {}", name, at, failure.message())};
    if (cancelled) co_return Error{"the call was cancelled"};
    Failure ignored;
    stream->socket().set_option(tcp::no_delay(true), ignored);
    co_return Status();
  }

  /// Lets the proxy connect us with the host; from then on it passes bytes on.
  asio::awaitable<Status> tunnel() {
    const std::string text = fmt::format("CONNECT {0}:{1} HTTP/1.1\r\nhost: {0}:{1}\r\n{2}\r\n", bracketed(host), port,
                                         proxy_authorization());
    const auto [unsent, sent] = co_await asio::async_write(*stream, asio::buffer(text), kTuple);
    http::response_parser<http::empty_body> parser;
    parser.skip(true);
    Failure failure = unsent;
    if (!failure) {
      const auto [unread, size] = co_await http::async_read_header(*stream, inbox, parser, kTuple);
      failure = unread;
    }
    const std::string& by = (*proxy)->url.host;
    if (failure) co_return Error{fmt::format("no answer from the proxy {}: {}", by, failure.message())};
    const unsigned status = parser.get().result_int();
    if (status == 407) co_return password_wanted();
    if (status / 100 != 2)
      co_return Error{fmt::format("the proxy {} answers {} and does not connect to {}:{}", by, status, host, port)};
    inbox.clear();
    co_return Status();
  }

  asio::awaitable<Status> encrypt() {
    const auto ours = tls_for_client();
    if (!ours.ok()) co_return ours.error();
    const Failure failure = co_await stream->connect(*ours, host);
    if (!failure) co_return Status();
    const long verdict = stream->verdict();
    if (verdict == X509_V_OK)
      co_return Error{fmt::format("no encrypted connection with {}:{}: {}", host, port, failure.message())};
    co_return Error{
        fmt::format("{}:{} shows a certificate that is not trusted ({}); if it should be, name a file with its "
                    "authority in $SSL_CERT_FILE",
                    host, port, X509_verify_cert_error_string(verdict))};
  }

  /// Whether a proxy reads our requests and passes them on, which it does not do with encrypted ones.
  bool passed_on() const { return proxy.ok() && *proxy && !tls; }

  std::string proxy_authorization() const {
    const std::string& value = (*proxy)->authorization;
    return value.empty() ? "" : fmt::format("Proxy-Authorization: {}\r\n", value);
  }

  Error password_wanted() const {
    return Error{fmt::format(
        "the proxy {} {}: name it as http://USER:PASSWORD@HOST:PORT", (*proxy)->url.host,
        (*proxy)->authorization.empty() ? "asks for a user and a password" : "does not take this user and password")};
  }

  std::string head_of(const HttpRequest& request) const {
    const std::string origin = passed_on() ? fmt::format("http://{}:{}", bracketed(host), port) : "";
    std::string out = fmt::format("{} {}{} HTTP/1.1\r\n", request.method, origin, request.target);
    const bool usual = port == (tls ? 443 : 80);
    if (request.header("host").empty())
      out += usual ? fmt::format("host: {}\r\n", host) : fmt::format("host: {}:{}\r\n", host, port);
    if (passed_on()) out += proxy_authorization();
    for (const auto& [name, value] : request.headers) out += fmt::format("{}: {}\r\n", name, value);
    if (!request.body.empty() || request.method == "POST")
      out += fmt::format("Content-Length: {}\r\n", request.body.size());
    return out + "\r\n";
  }

  asio::awaitable<Result<HttpResponse>> exchange(const HttpRequest& request, const HttpReading& reading) {
    const Status connected = co_await connect();
    if (!connected.ok()) co_return connected.error();
    const std::string text = head_of(request) + request.body;
    const auto [unsent, sent] = co_await asio::async_write(*stream, asio::buffer(text), kTuple);
    if (unsent) co_return Error{fmt::format("cannot send to {}:{}: {}", host, port, unsent.message())};

    Parser parser;
    parser.body_limit(std::numeric_limits<uint64_t>::max());
    if (request.method == "HEAD") parser.skip(true);
    const auto [failure, size] = co_await http::async_read_header(*stream, inbox, parser, kTuple);
    if (failure) co_return Error{fmt::format("no answer from {}:{}: {}", host, port, failure.message())};
    answered = true;
    heard_us = now_us();
    HttpResponse response{static_cast<int>(parser.get().result_int()), {}, ""};
    if (response.status == 407 && passed_on()) co_return password_wanted();
    for (const auto& field : parser.get()) {
      response.headers.emplace_back(lower(std::string_view(field.name_string())), std::string(field.value()));
    }
    if (reading.on_head && !reading.on_head(response)) co_return Error{"the answer was not wanted"};
    const Status read = co_await read_body(parser, reading, response);
    if (!read.ok()) co_return read.error();
    if (!parser.get().keep_alive()) close();
    co_return response;
  }

  /// A kept connection may have been closed by the server meanwhile: then once more on a new one.
  asio::awaitable<void> run(const HttpRequest& request, const HttpReading& reading,
                            std::optional<Result<HttpResponse>>& out) {
    const bool kept = open();
    answered = late = false;
    out.emplace(co_await exchange(request, reading));
    if (out->ok() || !kept || answered || late || cancelled) co_return;
    close();
    out.emplace(co_await exchange(request, reading));
  }

  asio::awaitable<Status> read_body(Parser& parser, const HttpReading& reading, HttpResponse& response) {
    const bool streamed = reading.on_piece && response.status / 100 == 2;
    constexpr size_t large = 64 << 10;
    std::vector<char> piece(streamed ? large : large / 4);
    // Beast reads as much at once as the buffer holds: 512 bytes, if it is left alone.
    if (streamed && parser.content_length_remaining().value_or(0) > large) inbox.reserve(large);
    while (!parser.is_done()) {
      parser.get().body().data = piece.data();
      parser.get().body().size = piece.size();
      const auto [failure, size] = co_await http::async_read_some(*stream, inbox, parser, kTuple);
      if (failure && failure != http::error::need_buffer) {
        co_return Error{fmt::format("the answer of {}:{} broke off: {}", host, port, failure.message())};
      }
      heard_us = now_us();
      const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
      if (streamed) {
        if (!got.empty() && !reading.on_piece(got)) co_return Error{"the answer was not wanted to its end"};
        continue;
      }
      response.body += got;
      if (static_cast<int64_t>(response.body.size()) > reading.max_body_bytes) {
        co_return Error{fmt::format("the answer of {}:{} is larger than {} bytes", host, port, reading.max_body_bytes)};
      }
    }
    co_return Status();
  }
};

HttpClient::HttpClient(std::string host, int port) : state_(std::make_unique<State>()) {
  state_->host = std::move(host);
  state_->port = port;
}

HttpClient::~HttpClient() = default;

HttpClient::HttpClient(const HttpUrl& url) : HttpClient(url.host, url.port) {
  state_->tls = url.tls;
  state_->proxy = proxy_for(url);
}

Result<HttpResponse> HttpClient::send(const HttpRequest& request, std::chrono::milliseconds timeout,
                                      const OnPiece& on_piece) {
  HttpReading reading;
  reading.timeout = timeout;
  reading.on_piece = on_piece;
  return send(request, reading);
}

Result<HttpResponse> HttpClient::send(const HttpRequest& request, const HttpReading& reading) {
  State& state = *state_;
  if (state.cancelled) return Error{"the call was cancelled"};
  std::optional<Result<HttpResponse>> result;
  state.io.restart();
  state.heard_us = now_us();
  asio::co_spawn(state.io, state.run(request, reading, result), asio::detached);
  const auto waited = state.wait(reading);
  if (!state.io.stopped()) {
    state.late = true;
    close();
    state.io.run();
    result = Error{fmt::format("no answer from {}:{} within {} ms", state.host, state.port, waited.count())};
  }
  if (!result->ok()) close();
  return std::move(*result);
}

void HttpClient::close() { state_->close(); }

void HttpClient::cancel() {
  state_->cancelled = true;
  asio::post(state_->io, [state = state_.get()] { state->close(); });
}

}  // namespace quern
