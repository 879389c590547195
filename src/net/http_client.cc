#include "net/http_client.h"

#include <algorithm>
#include <array>
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
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <charconv>
#include <fmt/format.h>
#include <limits>
#include <optional>

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

}  // namespace

Result<HttpUrl> parse_url(std::string_view url) {
  constexpr std::string_view scheme = "http://";
  if (!url.starts_with(scheme)) return Error{fmt::format("{}: a URL must start with http://", url)};
  std::string_view rest = url.substr(scheme.size());
  HttpUrl out;
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) out.path = rest.substr(slash);
  while (out.path.ends_with('/')) out.path.pop_back();
  rest = rest.substr(0, slash);
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

struct HttpClient::State {
  using Parser = http::response_parser<http::buffer_body>;

  std::string host;
  int port = 0;
  asio::io_context io{1};
  tcp::socket socket{io};
  boost::beast::flat_buffer inbox;
  bool answered = false;  // the header of an answer has come
  bool late = false;      // time is up
  std::atomic<bool> cancelled{false};

  void close() {
    Failure ignored;
    socket.close(ignored);
    inbox.clear();
  }

  asio::awaitable<Status> connect() {
    if (socket.is_open()) co_return Status();
    Failure no_number;
    const auto address = asio::ip::make_address(host, no_number);
    tcp::resolver::results_type endpoints;
    if (no_number) {
      tcp::resolver resolver(io);
      const auto [unresolved, found] = co_await resolver.async_resolve(host, std::to_string(port), kTuple);
      if (unresolved) co_return Error{fmt::format("cannot resolve {}: {}", host, unresolved.message())};
      endpoints = found;
    } else {
      endpoints = tcp::resolver::results_type::create(tcp::endpoint(address, static_cast<uint16_t>(port)), host, "");
    }
    const auto [failure, endpoint] = co_await asio::async_connect(socket, endpoints, kTuple);
    if (failure) co_return Error{fmt::format("cannot connect to {}:{}: {}", host, port, failure.message())};
    if (cancelled) co_return Error{"the call was cancelled"};
    Failure ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    co_return Status();
  }

  std::string head_of(const HttpRequest& request) const {
    std::string out = fmt::format("{} {} HTTP/1.1\r\n", request.method, request.target);
    if (request.header("host").empty()) out += fmt::format("host: {}:{}\r\n", host, port);
    for (const auto& [name, value] : request.headers) out += fmt::format("{}: {}\r\n", name, value);
    if (!request.body.empty() || request.method == "POST")
      out += fmt::format("Content-Length: {}\r\n", request.body.size());
    return out + "\r\n";
  }

  asio::awaitable<Result<HttpResponse>> exchange(const HttpRequest& request, const OnPiece& on_piece) {
    const Status connected = co_await connect();
    if (!connected.ok()) co_return connected.error();
    const std::string text = head_of(request) + request.body;
    const auto [unsent, sent] = co_await asio::async_write(socket, asio::buffer(text), kTuple);
    if (unsent) co_return Error{fmt::format("cannot send to {}:{}: {}", host, port, unsent.message())};

    Parser parser;
    parser.body_limit(std::numeric_limits<uint64_t>::max());
    if (request.method == "HEAD") parser.skip(true);
    const auto [failure, size] = co_await http::async_read_header(socket, inbox, parser, kTuple);
    if (failure) co_return Error{fmt::format("no answer from {}:{}: {}", host, port, failure.message())};
    answered = true;
    HttpResponse response{static_cast<int>(parser.get().result_int()), {}, ""};
    for (const auto& field : parser.get()) {
      response.headers.emplace_back(lower(std::string_view(field.name_string())), std::string(field.value()));
    }
    const bool streamed = on_piece && response.status / 100 == 2;
    const Status read = co_await read_body(parser, streamed ? &on_piece : nullptr, response.body);
    if (!read.ok()) co_return read.error();
    if (!parser.get().keep_alive()) close();
    co_return response;
  }

  /// A kept connection may have been closed by the server meanwhile: then once more on a new one.
  asio::awaitable<void> run(const HttpRequest& request, const OnPiece& on_piece,
                            std::optional<Result<HttpResponse>>& out) {
    const bool kept = socket.is_open();
    answered = late = false;
    out.emplace(co_await exchange(request, on_piece));
    if (out->ok() || !kept || answered || late || cancelled) co_return;
    close();
    out.emplace(co_await exchange(request, on_piece));
  }

  asio::awaitable<Status> read_body(Parser& parser, const OnPiece* on_piece, std::string& body) {
    std::array<char, 16384> piece{};
    while (!parser.is_done()) {
      parser.get().body().data = piece.data();
      parser.get().body().size = piece.size();
      const auto [failure, size] = co_await http::async_read_some(socket, inbox, parser, kTuple);
      if (failure && failure != http::error::need_buffer) {
        co_return Error{fmt::format("the answer of {}:{} broke off: {}", host, port, failure.message())};
      }
      const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
      if (on_piece == nullptr) {
        body += got;
      } else if (!got.empty() && !(*on_piece)(got)) {
        co_return Error{"the answer was not wanted to its end"};
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

Result<HttpResponse> HttpClient::send(const HttpRequest& request, std::chrono::milliseconds timeout,
                                      const OnPiece& on_piece) {
  if (state_->cancelled) return Error{"the call was cancelled"};
  std::optional<Result<HttpResponse>> result;
  state_->io.restart();
  asio::co_spawn(state_->io, state_->run(request, on_piece, result), asio::detached);
  state_->io.run_for(timeout);
  if (!state_->io.stopped()) {
    state_->late = true;
    close();
    state_->io.run();
    result = Error{fmt::format("no answer from {}:{} within {} ms", state_->host, state_->port, timeout.count())};
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
