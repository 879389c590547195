// Shard: one event loop with its thread; Connection: one client on it; Exchange: one request and its answer. Private to
// net.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "net/http_server.h"
#include "net/peers.h"
#include "net/stream.h"

namespace quern {

class Connection;

/// What all connections of a server share; outlives them.
struct ServerShared {
  Peers peers;
  HttpServerOptions options;
  HttpServer::Handler handler;
  std::atomic<int> connections = 0;
  std::atomic<int64_t> bodies_bytes = 0;
  std::atomic<bool> finishing = false;  // connections end with their present answer
};

/// One of the connections that a server takes, and of those of its peer; given back when it is destroyed.
class ConnectionPlace {
 public:
  /// nullptr when there is none.
  static std::unique_ptr<ConnectionPlace> take(std::shared_ptr<ServerShared> shared, std::string peer);
  ~ConnectionPlace();
  ConnectionPlace(const ConnectionPlace&) = delete;
  ConnectionPlace& operator=(const ConnectionPlace&) = delete;

 private:
  ConnectionPlace(std::shared_ptr<ServerShared> shared, std::string peer)
      : shared_(std::move(shared)), peer_(std::move(peer)) {}

  const std::shared_ptr<ServerShared> shared_;
  const std::string peer_;
};

/// Everything but post() is for the loop's own thread. Whoever holds a socket of the loop holds the shard.
struct Shard {
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::unordered_set<std::shared_ptr<Connection>> connections;
  bool closing = false;
  std::thread thread;

  void run();
  /// Closes all connections and lets run() return; any thread.
  void close();
  /// Closes those that no answer is being made for; any thread.
  void drop_idle();
  /// False, and nothing happens, when the loop has ended; any thread.
  template <typename Task>
  bool post(Task&& task) {
    posting_.fetch_add(1);
    const bool open = !ended_.load();
    if (open) boost::asio::post(io, std::forward<Task>(task));
    posting_.fetch_sub(1);
    return open;
  }

 private:
  // A task that is posted after the end would never run, and what it holds would keep the shard alive for ever.
  std::atomic<int> posting_ = 0;
  std::atomic<bool> ended_ = false;
};

class Exchange;

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  /// Without `tls` it speaks plain HTTP.
  Connection(std::shared_ptr<Shard> shard, std::shared_ptr<ServerShared> shared, boost::asio::ip::tcp::socket socket,
             std::shared_ptr<Tls> tls, std::unique_ptr<ConnectionPlace> place);
  ~Connection();

  void start();
  /// Ends it at once; the exchange in progress is told.
  void drop();
  /// The answer has grown or ended.
  void wake() { wake_.cancel(); }
  bool idle() const { return !exchange_; }
  const HttpServerOptions& options() const { return shared_->options; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Clock = std::chrono::steady_clock;

  boost::asio::awaitable<void> serve();
  boost::asio::awaitable<bool> shake_hands();
  boost::asio::awaitable<bool> serve_one();
  boost::asio::awaitable<bool> read_head(Parser& parser);
  boost::asio::awaitable<bool> read_body(Parser& parser);
  boost::asio::awaitable<bool> refuse(HttpResponse response);
  boost::asio::awaitable<bool> send_answer(std::shared_ptr<Exchange> exchange);
  boost::asio::awaitable<bool> write_all(std::string text);
  boost::asio::awaitable<void> watch_client();
  boost::asio::awaitable<void> stop_watching();
  boost::asio::awaitable<void> watch_deadline();
  boost::asio::awaitable<void> linger();
  bool reserve_body(const Parser& parser);
  void release_body();
  void set_deadline(std::chrono::milliseconds time) { set_deadline(Clock::now() + time); }
  void set_deadline(Clock::time_point time);
  void clear_deadline() { deadline_ = Clock::time_point::max(); }

  std::shared_ptr<Shard> shard_;
  std::shared_ptr<ServerShared> shared_;
  std::unique_ptr<ConnectionPlace> place_;
  std::shared_ptr<Tls> tls_;
  Stream stream_;
  boost::asio::steady_timer deadline_timer_;  // fires at or before the deadline
  Clock::time_point deadline_ = Clock::time_point::max();
  boost::asio::steady_timer wake_;
  boost::beast::flat_buffer inbox_;
  std::shared_ptr<Exchange> exchange_;  // in progress
  std::string peer_;
  int64_t reserved_bytes_ = 0;
  bool open_ = true;
  bool watching_ = false;  // the client may be watched
  bool watcher_runs_ = false;
};

/// Thread: any for the public half of Responder; its state belongs to the shard.
class Exchange final : public Responder, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<Shard> shard, std::shared_ptr<Connection> connection, bool head, bool http10,
           bool keep_alive)
      : shard_(std::move(shard)),
        connection_(std::move(connection)),
        head_(head),
        http10_(http10),
        keep_alive_(keep_alive) {}

  void send(HttpResponse response) override;
  void begin_stream(int status, HttpHeaders headers) override;
  void write(std::string piece) override;
  void end() override;
  void on_disconnect(std::function<void()> callback) override;
  void on_idle(std::chrono::milliseconds interval, std::function<void()> callback) override;
  void post(std::function<void()> task) override { shard_->post(std::move(task)); }

  // For the connection, on its loop.
  bool finished() const { return finished_; }
  bool keep_alive() const { return keep_alive_; }
  bool has_text() const { return !unsent_.empty(); }
  std::string take_text() { return std::exchange(unsent_, {}); }
  std::chrono::milliseconds idle_interval() const { return idle_interval_; }
  void idle();
  void lost();

 private:
  template <typename Task>
  void on_loop(Task task);
  void add_head(int status, const HttpHeaders& headers, bool chunked, size_t length);
  void do_send(HttpResponse response);
  void do_begin(int status, const HttpHeaders& headers);
  void do_write(std::string_view piece);
  void do_end();
  void finish();

  const std::shared_ptr<Shard> shard_;
  std::shared_ptr<Connection> connection_;  // none once the answer is complete or the client gone
  const bool head_;                         // the request was a HEAD: no body goes out
  const bool http10_;
  bool keep_alive_;
  bool begun_ = false;
  bool finished_ = false;
  bool lost_ = false;
  std::string unsent_;
  std::function<void()> on_disconnect_;
  std::function<void()> on_idle_;
  std::chrono::milliseconds idle_interval_{0};
};

}  // namespace quern
