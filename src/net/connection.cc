#include "net/connection.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <charconv>

#include "base/log.h"

namespace quern {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Failure = boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 16 << 10;
constexpr std::chrono::milliseconds kLingerTime{2'000};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  return out;
}

HttpRequest to_request(http::request<http::string_body>& message, const std::string& peer) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message) {
    request.headers.emplace_back(lower(std::string_view(field.name_string())), std::string(field.value()));
  }
  request.peer = peer;
  return request;
}

int status_of(const Failure& failure) {
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow) return 431;
  if (failure == http::error::body_limit) return 413;
  if (failure.category() == make_error_code(http::error::bad_method).category() &&
      failure != http::error::end_of_stream && failure != http::error::partial_message) {
    return 400;
  }
  return 0;
}

std::string message_of(int status, const Failure& failure, const HttpServerOptions& options) {
  if (status == 431) return fmt::format("The request header is larger than {} bytes.", options.max_header_bytes);
  if (status == 413) return fmt::format("The request body is larger than {} bytes.", options.max_body_bytes);
  return fmt::format("This is not a valid HTTP request: {}.", failure.message());
}

}  // namespace

void Shard::run() {
  io.run();
  ended_ = true;
  while (posting_ != 0) std::this_thread::yield();
  io.restart();
  io.poll();
}

void Shard::close() {
  post([this] {
    closing = true;
    const auto all = connections;
    for (const auto& connection : all) connection->drop();
    work.reset();
  });
}

void Shard::drop_idle() {
  post([this] {
    const auto all = connections;
    for (const auto& connection : all) {
      if (connection->idle()) connection->drop();
    }
  });
}

std::unique_ptr<ConnectionPlace> ConnectionPlace::take(std::shared_ptr<ServerShared> shared, std::string peer) {
  const HttpServerOptions& options = shared->options;
  const int most = peer.empty() ? 0 : options.max_connections_per_peer;
  if (shared->connections.fetch_add(1) >= options.max_connections || !shared->peers.enter(peer, most)) {
    shared->connections.fetch_sub(1);
    return nullptr;
  }
  return std::unique_ptr<ConnectionPlace>(new ConnectionPlace(std::move(shared), std::move(peer)));
}

ConnectionPlace::~ConnectionPlace() {
  shared_->peers.leave(peer_);
  shared_->connections.fetch_sub(1);
}

Connection::Connection(std::shared_ptr<Shard> shard, std::shared_ptr<ServerShared> shared, asio::ip::tcp::socket socket,
                       std::shared_ptr<Tls> tls, std::unique_ptr<ConnectionPlace> place)
    : shard_(std::move(shard)),
      shared_(std::move(shared)),
      place_(std::move(place)),
      tls_(std::move(tls)),
      stream_(std::move(socket)),
      deadline_timer_(shard_->io, Clock::time_point::max()),
      wake_(shard_->io),
      // Lines between chunks have no other bound than this.
      inbox_(static_cast<size_t>(shared_->options.max_header_bytes) + kReadBytes) {
  Failure ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  const bool in_files = !shared_->options.uds.empty();
  const auto endpoint = in_files ? asio::ip::tcp::endpoint() : stream_.socket().remote_endpoint(ignored);
  if (!ignored && !in_files) peer_ = endpoint.address().to_string();
}

Connection::~Connection() { release_body(); }

void Connection::start() {
  if (shard_->closing) return;
  shard_->connections.insert(shared_from_this());
  asio::co_spawn(shard_->io, watch_deadline(), asio::detached);
  asio::co_spawn(shard_->io, serve(), [self = shared_from_this()](std::exception_ptr error) {
    if (error) log_error("a connection ended by an exception");
    self->drop();
    self->shard_->connections.erase(self);
  });
}

void Connection::drop() {
  if (!open_) return;
  open_ = false;
  stream_.close();
  deadline_timer_.cancel();
  wake_.cancel();
  if (exchange_) exchange_->lost();
}

asio::awaitable<void> Connection::watch_deadline() {
  const auto self = shared_from_this();
  while (open_) {
    const auto [failure] = co_await deadline_timer_.async_wait(kTuple);
    if (!open_) break;
    if (deadline_ <= Clock::now()) {
      drop();
    } else if (!failure) {
      deadline_timer_.expires_at(deadline_);
    }
  }
}

/// Deadlines mostly move on: the timer is set again only when it would fire too late.
void Connection::set_deadline(Clock::time_point time) {
  deadline_ = time;
  if (time < deadline_timer_.expiry()) deadline_timer_.expires_at(time);
}

asio::awaitable<void> Connection::serve() {
  const auto self = shared_from_this();
  if (tls_ && !co_await shake_hands()) co_return;
  while (open_ && co_await serve_one()) {
  }
}

asio::awaitable<bool> Connection::shake_hands() {
  set_deadline(shared_->options.header_timeout);
  const Failure failure = co_await stream_.accept(tls_);
  if (failure) log_debug("no encrypted connection with {}: {}", peer_, failure.message());
  co_return !failure && open_;
}

/// One request and its answer; false when the connection is not to be used again.
asio::awaitable<bool> Connection::serve_one() {
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(shared_->options.max_header_bytes));
  parser.body_limit(static_cast<uint64_t>(shared_->options.max_body_bytes));
  if (!co_await read_head(parser)) co_return false;

  auto& message = parser.get();
  const bool keep_alive = message.keep_alive();
  HttpRequest request = to_request(message, peer_);
  if (shared_->options.check_head) {
    if (auto refused = shared_->options.check_head(request)) {
      if (!parser.is_done() || !keep_alive) co_return co_await refuse(std::move(*refused));
      exchange_ = std::make_shared<Exchange>(shard_, shared_from_this(), request.method == "HEAD",
                                             message.version() < 11, keep_alive);
      exchange_->send(std::move(*refused));
      co_return co_await send_answer(exchange_);
    }
  }
  if (!co_await read_body(parser)) co_return false;
  request.body = std::move(message.body());
  exchange_ = std::make_shared<Exchange>(shard_, shared_from_this(), request.method == "HEAD", message.version() < 11,
                                         keep_alive);
  shared_->handler(std::move(request), exchange_);
  const bool again = co_await send_answer(exchange_);
  release_body();
  co_return again;
}

asio::awaitable<bool> Connection::read_head(Parser& parser) {
  if (inbox_.size() == 0) {
    set_deadline(shared_->options.idle_timeout);
    const auto [failure, size] = co_await stream_.async_read_some(inbox_.prepare(kReadBytes), kTuple);
    if (failure) co_return false;
    inbox_.commit(size);
  }
  set_deadline(shared_->options.header_timeout);
  const auto [failure, size] = co_await http::async_read_header(stream_, inbox_, parser, kTuple);
  if (!failure) co_return true;
  const int status = open_ ? status_of(failure) : 0;
  if (status == 0) co_return false;
  co_return co_await refuse(shared_->options.refusal(status, message_of(status, failure, shared_->options)));
}

asio::awaitable<bool> Connection::read_body(Parser& parser) {
  if (parser.is_done()) co_return true;
  if (!reserve_body(parser)) {
    HttpResponse busy = shared_->options.refusal(503, "Too many large requests at once; try again.");
    busy.headers.emplace_back("Retry-After", "1");
    co_return co_await refuse(std::move(busy));
  }
  const auto latest = Clock::now() + 10 * shared_->options.body_timeout;
  if (lower(std::string_view(parser.get()[http::field::expect])) == "100-continue" && inbox_.size() == 0) {
    if (!co_await write_all("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  }
  while (!parser.is_done()) {
    set_deadline(std::min<Clock::time_point>(Clock::now() + shared_->options.body_timeout, latest));
    const auto [failure, size] = co_await http::async_read_some(stream_, inbox_, parser, kTuple);
    if (!failure) continue;
    const int status = open_ ? status_of(failure) : 0;
    if (status == 0) co_return false;
    if (failure == http::error::buffer_overflow)
      co_return co_await refuse(shared_->options.refusal(431, "A line between the chunks of the body is too long."));
    co_return co_await refuse(shared_->options.refusal(status, message_of(status, failure, shared_->options)));
  }
  co_return true;
}

/// Takes its share of the memory for bodies; a body of unknown length counts as the largest one.
bool Connection::reserve_body(const Parser& parser) {
  const auto length = parser.content_length();
  reserved_bytes_ = length ? static_cast<int64_t>(*length) : shared_->options.max_body_bytes;
  if (shared_->bodies_bytes.fetch_add(reserved_bytes_) + reserved_bytes_ <= shared_->options.max_bodies_bytes)
    return true;
  release_body();
  return false;
}

void Connection::release_body() { shared_->bodies_bytes.fetch_sub(std::exchange(reserved_bytes_, 0)); }

/// Answers a request whose rest is not read, then closes.
asio::awaitable<bool> Connection::refuse(HttpResponse response) {
  exchange_ = std::make_shared<Exchange>(shard_, shared_from_this(), false, false, false);
  exchange_->send(std::move(response));
  co_await send_answer(exchange_);
  co_return false;
}

asio::awaitable<bool> Connection::send_answer(std::shared_ptr<Exchange> exchange) {
  clear_deadline();
  if (!exchange->finished()) {
    watching_ = watcher_runs_ = true;
    asio::co_spawn(shard_->io, watch_client(), asio::detached);
  }
  while (open_ && (exchange->has_text() || !exchange->finished())) {
    if (exchange->has_text()) {
      if (!co_await write_all(exchange->take_text())) drop();
      clear_deadline();
      continue;
    }
    const auto interval = exchange->idle_interval();
    if (interval.count() > 0) {
      wake_.expires_after(interval);
    } else {
      wake_.expires_at(Clock::time_point::max());
    }
    const auto [failure] = co_await wake_.async_wait(kTuple);
    if (!failure && open_) exchange->idle();
  }
  co_await stop_watching();
  exchange_.reset();
  if (!open_) co_return false;
  const bool again = exchange->keep_alive() && !shared_->finishing;
  if (!again) co_await linger();
  co_return again&& open_;
}

asio::awaitable<bool> Connection::write_all(std::string text) {
  size_t done = 0;
  while (done < text.size()) {
    set_deadline(shared_->options.write_timeout);
    const auto [failure, size] =
        co_await stream_.async_write_some(asio::buffer(text.data() + done, text.size() - done), kTuple);
    if (failure) co_return false;
    done += size;
  }
  co_return true;
}

/// Reads ahead while an answer is being made: the end of the stream means that the client has gone; other bytes belong
/// to the next request.
asio::awaitable<void> Connection::watch_client() {
  const auto self = shared_from_this();
  while (watching_ && open_ && inbox_.size() < static_cast<size_t>(shared_->options.max_header_bytes)) {
    const auto [failure, size] = co_await stream_.async_read_some(inbox_.prepare(kReadBytes), kTuple);
    inbox_.commit(size);
    if (failure == asio::error::operation_aborted) break;
    if (failure) drop();
  }
  watcher_runs_ = false;
  wake_.cancel();
}

asio::awaitable<void> Connection::stop_watching() {
  watching_ = false;
  Failure ignored;
  if (watcher_runs_ && open_) stream_.socket().cancel(ignored);
  // A reader of half an encrypted record may begin to wait for the other half just after the call.
  if (watcher_runs_ && open_ && stream_.encrypted()) set_deadline(shared_->options.body_timeout);
  while (watcher_runs_) {
    wake_.expires_at(Clock::time_point::max());
    co_await wake_.async_wait(kTuple);
  }
}

/// Lets the client read the answer before the connection goes: closing with unread input would reset it.
asio::awaitable<void> Connection::linger() {
  set_deadline(kLingerTime);
  co_await stream_.finish();
  for (bool more = true; more && open_;) {
    inbox_.clear();
    const auto [failure, size] = co_await stream_.socket().async_read_some(inbox_.prepare(kReadBytes), kTuple);
    more = !failure;
  }
}

template <typename Task>
void Exchange::on_loop(Task task) {
  if (shard_->io.get_executor().running_in_this_thread()) {
    if (connection_) task();
    return;
  }
  shard_->post([self = shared_from_this(), moved = std::move(task)]() mutable {
    if (self->connection_) moved();
  });
}

void Exchange::send(HttpResponse response) {
  on_loop([this, moved = std::move(response)]() mutable { do_send(std::move(moved)); });
}
void Exchange::begin_stream(int status, HttpHeaders headers) {
  on_loop([this, status, moved = std::move(headers)] { do_begin(status, moved); });
}
void Exchange::write(std::string piece) {
  on_loop([this, moved = std::move(piece)] { do_write(moved); });
}
void Exchange::end() {
  on_loop([this] { do_end(); });
}

void Exchange::on_disconnect(std::function<void()> callback) {
  const auto set = [self = shared_from_this(), moved = std::move(callback)] {
    if (self->lost_) {
      moved();
    } else if (!self->finished_) {
      self->on_disconnect_ = moved;
    }
  };
  if (shard_->io.get_executor().running_in_this_thread()) {
    set();
  } else {
    shard_->post(set);
  }
}

void Exchange::on_idle(std::chrono::milliseconds interval, std::function<void()> callback) {
  on_loop([this, interval, moved = std::move(callback)] {
    idle_interval_ = interval;
    on_idle_ = moved;
    connection_->wake();
  });
}

void Exchange::idle() {
  const auto callback = on_idle_;  // it may end the answer, which forgets the original
  if (callback) callback();
}

void Exchange::lost() {
  if (finished_ || lost_) {
    connection_.reset();
    return;
  }
  lost_ = true;
  unsent_.clear();
  const auto callback = std::exchange(on_disconnect_, nullptr);
  on_idle_ = nullptr;
  connection_.reset();
  if (callback) callback();
}

void Exchange::add_head(int status, const HttpHeaders& headers, bool chunked, size_t length) {
  if (chunked && http10_) keep_alive_ = false;
  unsent_ += fmt::format("HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
  for (const auto& [name, value] : headers) {
    if (name == "Connection" && value == "close") {
      keep_alive_ = false;
      continue;
    }
    unsent_ += fmt::format("{}: {}\r\n", name, value);
  }
  if (!chunked && status != 204) unsent_ += fmt::format("Content-Length: {}\r\n", length);
  if (chunked && !http10_) unsent_ += "Transfer-Encoding: chunked\r\n";
  unsent_ += keep_alive_ ? (http10_ ? "Connection: keep-alive\r\n\r\n" : "\r\n") : "Connection: close\r\n\r\n";
}

void Exchange::do_send(HttpResponse response) {
  if (begun_ || finished_) return;
  add_head(response.status, response.headers, false, response.body.size());
  if (!head_) unsent_ += response.body;
  finish();
}

void Exchange::do_begin(int status, const HttpHeaders& headers) {
  if (begun_ || finished_) return;
  begun_ = true;
  add_head(status, headers, true, 0);
  connection_->wake();
}

void Exchange::do_write(std::string_view piece) {
  if (!begun_ || finished_ || head_ || piece.empty()) return;
  if (static_cast<int64_t>(unsent_.size() + piece.size()) > connection_->options().max_unsent_bytes) {
    log_warning("a client reads too slowly: dropped with {} bytes unsent", unsent_.size());
    const auto connection = connection_;
    connection->drop();
    return;
  }
  if (http10_) {
    unsent_ += piece;
  } else {
    unsent_ += fmt::format("{:x}\r\n", piece.size());
    unsent_ += piece;
    unsent_ += "\r\n";
  }
  connection_->wake();
}

void Exchange::do_end() {
  if (!begun_ || finished_) return;
  if (!http10_ && !head_) unsent_ += "0\r\n\r\n";
  finish();
}

void Exchange::finish() {
  finished_ = true;
  on_disconnect_ = nullptr;
  on_idle_ = nullptr;
  idle_interval_ = {};
  const auto connection = std::exchange(connection_, nullptr);
  connection->wake();
}

}  // namespace quern
