#include "net/http_server.h"

#include <array>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/log.h"
#include "net/connection.h"
#include "net/unix_socket.h"

namespace quern {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using Failure = boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::milliseconds kFinishPoll{2};
constexpr std::chrono::milliseconds kLookInterval{1'000};
constexpr std::string_view kFull =
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// When the files of a server's certificates were last written, in nanoseconds; 0 for one that is not there.
std::array<int64_t, 2> times_of(const TlsFiles& files) {
  const auto time_of = [](const std::string& path) {
    struct stat status{};
    if (path.empty() || ::stat(path.c_str(), &status) != 0) return int64_t{0};
    return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  };
  return {time_of(files.certificates), time_of(files.key)};
}

/// Opens, binds and listens; the first failure.
Failure listen_on(tcp::acceptor& acceptor, const tcp::endpoint& endpoint) {
  Failure failure;
  acceptor.open(endpoint.protocol(), failure);
  if (!failure) acceptor.set_option(tcp::acceptor::reuse_address(true), failure);
  if (!failure) acceptor.bind(endpoint, failure);
  if (!failure) acceptor.listen(asio::socket_base::max_listen_connections, failure);
  return failure;
}

}  // namespace

struct HttpServer::State {
  std::shared_ptr<ServerShared> shared = std::make_shared<ServerShared>();
  std::vector<std::shared_ptr<Shard>> shards;
  std::unique_ptr<tcp::acceptor> acceptor;  // on the first shard
  int port = 0;
  std::atomic<bool> listening = true;
  // On the first shard:
  std::shared_ptr<Tls> tls;  // none: plain HTTP
  std::array<int64_t, 2> tls_times{};
  std::chrono::steady_clock::time_point next_look{};

  void stop_listening() {
    shards[0]->post([this] {
      if (!acceptor->is_open()) return;  // the path may be another server's by now
      if (const std::string& path = shared->options.uds; !path.empty()) ::unlink(path.c_str());
      Failure ignored;
      acceptor->close(ignored);
      listening = false;
    });
  }

  /// The certificates; read again when their files have changed. Those that cannot be read change nothing.
  const std::shared_ptr<Tls>& current_tls() {
    const auto now = std::chrono::steady_clock::now();
    if (!tls || now < next_look) return tls;
    next_look = now + kLookInterval;
    const auto times = times_of(shared->options.tls);
    if (std::exchange(tls_times, times) == times) return tls;
    auto fresh = tls_for_server(shared->options.tls);
    if (fresh.ok()) {
      tls = std::move(*fresh);
      log_info("new certificates were read from {}", shared->options.tls.certificates);
    } else {
      log_warning("the old certificates stay: {}", fresh.error().message);
    }
    return tls;
  }

  /// One acceptor deals connections out in turn, which spreads few long streams better than the kernel's hash would.
  asio::awaitable<void> accept() {
    for (size_t next = 0; acceptor->is_open(); next = (next + 1) % shards.size()) {
      const auto shard = shards[next];
      auto [failure, socket] = co_await acceptor->async_accept(shard->io, kTuple);
      if (!acceptor->is_open()) break;
      if (failure) {  // no file descriptors left, most likely
        asio::steady_timer pause(shards[0]->io, kAcceptPause);
        co_await pause.async_wait(kTuple);
        continue;
      }
      auto place = ConnectionPlace::take(shared, peer_of(socket));
      if (!place) {
        Failure ignored;
        socket.non_blocking(true, ignored);
        if (!tls) socket.write_some(asio::buffer(kFull), ignored);
        continue;
      }
      shard->post(
          [shard, shared = shared, moved = std::move(socket), ours = current_tls(), held = std::move(place)]() mutable {
            std::make_shared<Connection>(shard, shared, std::move(moved), std::move(ours), std::move(held))->start();
          });
    }
  }

  /// "" for those of a socket in the file system.
  template <typename Socket>
  std::string peer_of(const Socket& socket) const {
    Failure failure;
    if (!shared->options.uds.empty()) return "";
    const auto endpoint = socket.remote_endpoint(failure);
    return failure ? "" : Peers::key(endpoint.address());
  }

  Status listen() {
    const HttpServerOptions& options = shared->options;
    acceptor = std::make_unique<tcp::acceptor>(shards[0]->io);
    return options.uds.empty() ? listen_on_port(options.host, options.port) : listen_on_path(options.uds);
  }

  Status listen_on_path(const std::string& path) {
    ASSIGN_OR_RETURN(const int listener, listen_at(path));
    Failure failure;
    acceptor->assign(tcp::v4(), listener, failure);
    if (failure) return Error{fmt::format("--uds {}: {}", path, failure.message())};
    return {};
  }

  Status listen_on_port(const std::string& host, int wanted) {
    Failure failure;
    tcp::resolver resolver(shards[0]->io);
    const auto found = resolver.resolve(host, std::to_string(wanted),
                                        tcp::resolver::passive | tcp::resolver::numeric_service, failure);
    if (failure || found.empty()) return Error{fmt::format("cannot resolve host {}: {}", host, failure.message())};
    failure = listen_on(*acceptor, found.begin()->endpoint());
    if (failure == asio::error::address_in_use)
      return Error{fmt::format("port {} on {} is in use; choose another one with --port", wanted, host)};
    if (failure) return Error{fmt::format("cannot listen on {} port {}: {}", host, wanted, failure.message())};
    port = acceptor->local_endpoint().port();
    return {};
  }
};

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, Handler handler) {
  auto state = std::make_unique<State>();
  for (int i = 0; i < std::max(1, options.shards); ++i) state->shards.push_back(std::make_shared<Shard>());
  if (!options.refusal)
    options.refusal = [](int status, std::string_view text) { return HttpResponse{status, {}, std::string(text)}; };
  if (!options.tls.certificates.empty()) {
    state->tls_times = times_of(options.tls);
    ASSIGN_OR_RETURN(state->tls, tls_for_server(options.tls));
  }
  state->shared->options = std::move(options);
  state->shared->handler = std::move(handler);

  TRY(state->listen());
  asio::co_spawn(state->shards[0]->io, state->accept(), asio::detached);
  for (const auto& shard : state->shards) {
    shard->thread = std::thread([raw = shard.get()] { raw->run(); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  state_->stop_listening();
  for (const auto& shard : state_->shards) shard->close();
  for (const auto& shard : state_->shards) shard->thread.join();
}

int HttpServer::port() const { return state_->port; }

int HttpServer::connections() const { return state_->shared->connections; }

void HttpServer::finish(std::chrono::milliseconds time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  state_->shared->finishing = true;
  state_->stop_listening();
  for (const auto& shard : state_->shards) shard->drop_idle();
  const auto open = [&] { return state_->listening || connections() > 0; };
  while (open() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kFinishPoll);
}

}  // namespace quern
