// Who may connect, and where: limits of peers, and sockets in the file system.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "net/http_server.h"
#include "net/peers.h"
#include "net/testing.h"
#include "net/unix_socket.h"

namespace quern {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

void echo(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  responder->send({200, {}, request.target});
}

std::string get(std::string_view target) { return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", target); }

TEST(HttpServer, S18RefusesConnectionsOverTheLimitOfAPeer) {
  HttpServerOptions options;
  options.max_connections_per_peer = 1;
  const auto server = HttpServer::start(options, echo).value();
  {
    RawClient first(server->port());
    first.send(get("/1"));
    first.read_until("/1");
    EXPECT_THAT(RawClient(server->port()).read_all(), StartsWith("HTTP/1.1 503 "));
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (server->connections() > 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_EQ(server->connections(), 0);

  RawClient third(server->port());
  third.send(get("/3"));

  EXPECT_THAT(third.read_until("/3"), HasSubstr("200"));
}

TEST(Peers, AreAddressesAndNetworksOfIpv6) {
  const auto key = [](const char* text) { return Peers::key(boost::asio::ip::make_address(text)); };
  EXPECT_EQ(key("10.0.0.1"), key("::ffff:10.0.0.1"));
  EXPECT_NE(key("10.0.0.1"), key("10.0.0.2"));
  EXPECT_EQ(key("2001:db8:0:1::1"), key("2001:db8:0:1:ffff::2"));
  EXPECT_NE(key("2001:db8:0:1::1"), key("2001:db8:0:2::1"));
  EXPECT_NE(key("fe80::1"), key("fe80::2"));
  EXPECT_NE(key("1.1.1.1"), key("312e:312e:312e:3100::"));  // whose network spells it
}

TEST(HttpServer, ListensOnASocketInTheFileSystem) {
  HttpServerOptions options;
  options.uds = ::testing::TempDir() + fmt::format("quern_{}.sock", ::getpid());
  auto server = HttpServer::start(options, echo);
  ASSERT_TRUE(server.ok()) << server.error().message;
  const auto second = HttpServer::start(options, echo);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("in use"));

  RawClient client(options.uds);
  client.send(get("/here"));
  EXPECT_THAT(client.read_until("/here"), HasSubstr("200"));

  server->reset();
  EXPECT_NE(::access(options.uds.c_str(), F_OK), 0);
}

TEST(HttpServer, ReplacesASocketThatNobodyListensOn) {
  HttpServerOptions options;
  options.uds = ::testing::TempDir() + fmt::format("quern_old_{}.sock", ::getpid());
  ::close(listen_at(options.uds).value());

  EXPECT_TRUE(HttpServer::start(options, echo).ok());
  options.uds = std::string(200, 'x');
  EXPECT_THAT(HttpServer::start(options, echo).error().message, HasSubstr("longer than"));
}

}  // namespace
}  // namespace quern
