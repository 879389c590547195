// HTTPS over the loopback interface, with certificates that are made for the test.
#include <chrono>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "net/http_client.h"
#include "net/http_server.h"
#include "net/tls_testing.h"

namespace quern {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TestCertificate;
using namespace std::chrono_literals;

/// What the clients of this process trust.
const TestCertificate& trusted() {
  static const TestCertificate made = [] {
    TestCertificate one("trusted", "localhost");
    ::setenv("SSL_CERT_FILE", one.certificate.c_str(), 1);
    return one;
  }();
  return made;
}

HttpServerOptions encrypted(const TestCertificate& certificate) {
  HttpServerOptions options;
  options.tls = {certificate.certificate, certificate.key, ""};
  return options;
}

void echo(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  responder->send({200, {}, request.body.empty() ? request.target : request.body});
}

std::unique_ptr<HttpServer> serve(HttpServerOptions options, HttpServer::Handler handler = echo) {
  auto server = HttpServer::start(std::move(options), std::move(handler));
  EXPECT_TRUE(server.ok()) << server.error().message;
  return std::move(server).value();
}

HttpUrl url_of(const HttpServer& server, const std::string& host = "localhost") {
  return parse_url(fmt::format("https://{}:{}", host, server.port())).value();
}

/// Connects, sends `text` and returns what comes until the server closes.
std::string raw_exchange(int port, std::string_view text) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::send(socket, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  std::string all;
  char buffer[4096];
  for (bool more = true; more;) {
    pollfd wait{socket, POLLIN, 0};
    if (::poll(&wait, 1, 5000) != 1) return "no end";
    const ssize_t size = ::recv(socket, buffer, sizeof buffer, 0);
    if (size > 0) all.append(buffer, static_cast<size_t>(size));
    more = size > 0;
  }
  ::close(socket);
  return all;
}

TEST(Tls, AnswersManyRequestsOnOneConnection) {
  const auto server = serve(encrypted(trusted()));
  HttpClient client(url_of(*server));

  for (int i = 0; i < 100; ++i) {
    const auto answer = client.send({"POST", "/x", {}, std::string(1000, 'x') + std::to_string(i), ""}, 5s);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    ASSERT_EQ(answer.value().body, std::string(1000, 'x') + std::to_string(i));
  }

  EXPECT_EQ(server->connections(), 1);
}

TEST(Tls, SendsStreamsAndLargeBodies) {
  const std::string large(3 << 20, 'l');
  const auto server = serve(encrypted(trusted()), [&](const HttpRequest& request, const auto& responder) {
    EXPECT_EQ(request.body, large);
    responder->begin_stream(200, {});
    for (int i = 0; i < 100; ++i) responder->write(std::string(20'000, 's'));
    responder->end();
  });
  HttpClient client(url_of(*server));
  size_t bytes = 0;

  const auto answer = client.send({"POST", "/", {}, large, ""}, 10s, [&](std::string_view piece) {
    bytes += piece.size();
    return true;
  });

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(bytes, 2'000'000U);
}

TEST(Tls, RefusesACertificateThatNobodyTrusts) {
  trusted();
  const TestCertificate stranger("stranger", "localhost");
  const auto server = serve(encrypted(stranger));
  HttpClient client(url_of(*server));

  const auto answer = client.send({"GET", "/", {}, "", ""}, 5s);

  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.error().message, HasSubstr("certificate that is not trusted"));
}

TEST(Tls, RefusesTheCertificateOfAnotherHost) {
  const auto server = serve(encrypted(trusted()));
  HttpClient client(url_of(*server, "127.0.0.1"));

  const auto answer = client.send({"GET", "/", {}, "", ""}, 5s);

  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.error().message, HasSubstr("certificate that is not trusted ("));
}

TEST(Tls, ClosesOnPlainHttp) {
  const auto server = serve(encrypted(trusted()));

  const std::string answer = raw_exchange(server->port(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");

  EXPECT_EQ(answer.find("HTTP/1.1 200"), std::string::npos);
  EXPECT_NE(answer, "no end");
}

TEST(Tls, DropsWhoDoesNotShakeHands) {
  HttpServerOptions options = encrypted(trusted());
  options.header_timeout = 100ms;
  const auto server = serve(options);

  EXPECT_EQ(raw_exchange(server->port(), ""), "");
  EXPECT_EQ(raw_exchange(server->port(), std::string_view("\x16\x03\x01\x02\x00\x01", 6)), "");
}

TEST(Tls, LimitsHeadersAndBodies) {
  HttpServerOptions options = encrypted(trusted());
  options.max_header_bytes = 4096;
  options.max_body_bytes = 1000;
  const auto server = serve(options);
  HttpClient client(url_of(*server));

  EXPECT_EQ(client.send({"GET", "/", {{"x", std::string(8000, 'x')}}, "", ""}, 5s).value().status, 431);
  EXPECT_EQ(client.send({"POST", "/", {}, std::string(1001, 'x'), ""}, 5s).value().status, 413);
}

TEST(Tls, AsksClientsForCertificatesWhenToldTo) {
  HttpServerOptions options = encrypted(trusted());
  options.tls.client_authorities = trusted().certificate;
  const auto server = serve(options);
  HttpClient client(url_of(*server));

  EXPECT_FALSE(client.send({"GET", "/", {}, "", ""}, 5s).ok());
}

TEST(Tls, SaysWhichFileIsNone) {
  HttpServerOptions options;
  options.tls = {"/nowhere/a.crt", "/nowhere/a.key", ""};
  EXPECT_THAT(HttpServer::start(options, echo).error().message, StartsWith("/nowhere/a.crt: no certificate"));
  options.tls = {trusted().certificate, TestCertificate("other", "localhost").key, ""};
  EXPECT_THAT(HttpServer::start(options, echo).error().message, HasSubstr("no private key of"));
}

TEST(Tls, ReadsNewCertificatesWithoutAStart) {
  trusted();
  const TestCertificate replaced("replaced", "localhost");
  const auto server = serve(encrypted(replaced));
  ASSERT_FALSE(HttpClient(url_of(*server)).send({"GET", "/", {}, "", ""}, 5s).ok());

  std::filesystem::copy_file(trusted().certificate, replaced.certificate,
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(trusted().key, replaced.key, std::filesystem::copy_options::overwrite_existing);
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  bool good = false;
  while (!good && std::chrono::steady_clock::now() < deadline)
    good = HttpClient(url_of(*server)).send({"GET", "/", {}, "", ""}, 5s).ok();

  EXPECT_TRUE(good);
}

TEST(Tls, EndsWhileClientsAreConnected) {
  auto server = serve(encrypted(trusted()));
  HttpClient client(url_of(*server));
  ASSERT_TRUE(client.send({"GET", "/", {}, "", ""}, 5s).ok());

  server->finish(20s);  // it waits a while for a client that was just answered
  EXPECT_EQ(server->connections(), 0);
  server.reset();

  EXPECT_FALSE(client.send({"GET", "/", {}, "", ""}, 5s).ok());
}

}  // namespace
}  // namespace quern
