// The HTTP server and client together, over the loopback interface.
#include <atomic>
#include <fmt/format.h>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <thread>

#include "base/channel.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/proxy.h"
#include "net/sse.h"
#include "net/testing.h"

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;

/// Answers with the request's body, or what the path asks for.
void echo(HttpRequest request, const std::shared_ptr<Responder>& responder) {
  responder->send({200, {{"X-Method", request.method}}, request.body.empty() ? request.target : request.body});
}

std::unique_ptr<HttpServer> serve(HttpServerOptions options, HttpServer::Handler handler = echo) {
  auto server = HttpServer::start(std::move(options), std::move(handler));
  EXPECT_TRUE(server.ok());
  return std::move(server).value();
}

std::string get(std::string_view target) { return fmt::format("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", target); }

TEST(HttpServer, AnswersManyRequestsOnOneConnection) {
  const auto server = serve({});
  HttpClient client("127.0.0.1", server->port());

  for (int i = 0; i < 1000; ++i) {
    const auto answer = client.send({"POST", "/x", {}, std::to_string(i), ""}, 5s);
    ASSERT_TRUE(answer.ok());
    ASSERT_EQ(answer.value().body, std::to_string(i));
  }

  EXPECT_EQ(server->connections(), 1);
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  const auto server = serve({});
  RawClient client(server->port());

  client.send(get("/first") + get("/second") + get("/third"));

  EXPECT_THAT(client.read_until("/first"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(client.read_until("/second"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(client.read_until("/third"), HasSubstr("Content-Length: 6\r\n"));
}

TEST(HttpServer, TakesARequestThatWasSentWhileAnAnswerWasBeingMade) {
  Channel<std::shared_ptr<Responder>> calls;
  const auto server =
      serve({}, [&](const HttpRequest&, std::shared_ptr<Responder> responder) { calls.try_send(responder); });
  RawClient client(server->port());
  client.send(get("/1"));
  const auto first = *calls.receive();
  client.send(get("/2"));

  first->send({200, {}, "one"});
  EXPECT_THAT(client.read_until("one"), HasSubstr("200 OK"));
  (*calls.receive())->send({200, {}, "two"});

  EXPECT_THAT(client.read_until("two"), HasSubstr("200 OK"));
}

TEST(HttpServer, ReadsChunkedBodies) {
  const auto server = serve({});
  RawClient client(server->port());

  client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");

  EXPECT_THAT(client.read_until("abcde"), HasSubstr("200 OK"));
}

TEST(HttpServer, AsksForABodyThatWaitsForIt) {
  const auto server = serve({});
  RawClient client(server->port());

  client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");

  EXPECT_THAT(client.read_until("abc"), HasSubstr("200 OK"));
}

TEST(HttpServer, ClosesAfterAnAnswerToHttp10) {
  const auto server = serve({});
  RawClient client(server->port());

  client.send("GET /old HTTP/1.0\r\n\r\n");

  EXPECT_THAT(client.read_all(), HasSubstr("Connection: close\r\n\r\n/old"));
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  const auto server = serve({});
  RawClient client(server->port());

  client.send("HEAD /abc HTTP/1.1\r\nHost: a\r\n\r\n" + get("/next"));

  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(client.read_until("/next"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, RefusesWhatIsNoHttp) {
  const auto server = serve({});
  RawClient client(server->port());

  client.send("\x16\x03\x01 hello\r\n\r\n");

  EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 400 "));
}

// S18: limits before parsing.
TEST(HttpServer, S18RefusesALargeHeader) {
  HttpServerOptions options;
  options.max_header_bytes = 4096;
  const auto server = serve(options);
  RawClient client(server->port());

  client.send("GET / HTTP/1.1\r\nX: " + std::string(8192, 'x') + "\r\n\r\n");

  EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 431 "));
}

TEST(HttpServer, S18RefusesALargeBodyBeforeReadingIt) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  const auto server = serve(options);
  RawClient client(server->port());

  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");

  EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 413 "));
}

TEST(HttpServer, S18CountsAChunkedBodyAsItArrives) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  const auto server = serve(options);
  RawClient client(server->port());

  client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + std::string(1024, 'x'));

  EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 413 "));
}

/// Neither the limit of headers nor that of bodies counts them.
TEST(HttpServer, S18BoundsLinesBetweenChunks) {
  const auto server = serve({});
  for (const std::string endless : {"3;", "", "0\r\nx: "}) {
    RawClient client(server->port());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + endless +
                std::string(100'000, '0'));

    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 4")) << endless;
  }
}

TEST(HttpServer, S18BoundsAllBodiesTogether) {
  HttpServerOptions options;
  options.max_bodies_bytes = 100;
  Channel<std::shared_ptr<Responder>> calls;
  const auto server =
      serve(options, [&](const HttpRequest&, std::shared_ptr<Responder> responder) { calls.try_send(responder); });
  RawClient first(server->port());
  first.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60\r\n\r\n" + std::string(60, 'x'));
  const auto call = *calls.receive();
  RawClient second(server->port());

  second.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60\r\n\r\n" + std::string(60, 'x'));

  EXPECT_THAT(second.read_all(), StartsWith("HTTP/1.1 503 "));
  call->send({200, {}, "fine"});
  EXPECT_THAT(first.read_until("fine"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, ClosesAHeaderThatNeverEnds) {
  HttpServerOptions options;
  options.header_timeout = 30ms;
  const auto server = serve(options);
  RawClient slow(server->port());

  slow.send("GET / HTTP/1.1\r\nX: ");

  EXPECT_THAT(slow.read_all(), IsEmpty());
  RawClient other(server->port());
  other.send(get("/fine"));
  EXPECT_THAT(other.read_until("/fine"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, ClosesABodyThatStalls) {
  HttpServerOptions options;
  options.body_timeout = 30ms;
  const auto server = serve(options);
  RawClient slow(server->port());

  slow.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");

  EXPECT_THAT(slow.read_all(), IsEmpty());
}

TEST(HttpServer, ClosesAnIdleConnection) {
  HttpServerOptions options;
  options.idle_timeout = 20ms;
  const auto server = serve(options);
  RawClient client(server->port());

  EXPECT_THAT(client.read_all(), IsEmpty());
}

TEST(HttpServer, AnswersBeforeTheBodyWhenTheHeadIsRefused) {
  HttpServerOptions options;
  options.check_head = [](const HttpRequest& head) -> std::optional<HttpResponse> {
    if (head.header("authorization").empty()) return HttpResponse{401, {}, "no key"};
    return std::nullopt;
  };
  std::atomic<int> handled = 0;
  const auto server = serve(options, [&](HttpRequest request, const std::shared_ptr<Responder>& responder) {
    ++handled;
    echo(std::move(request), responder);
  });
  RawClient client(server->port());

  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");

  EXPECT_THAT(client.read_all(), AllOf(StartsWith("HTTP/1.1 401 "), HasSubstr("no key")));
  EXPECT_EQ(handled, 0);
}

TEST(HttpServer, StreamsEachWriteAsOneChunk) {
  const auto server = serve({}, [](const HttpRequest&, const std::shared_ptr<Responder>& responder) {
    std::thread([responder] {
      responder->begin_stream(200, {{"Content-Type", "text/event-stream"}});
      responder->write("data: 1\n\n");
      responder->write("data: 2\n\n");
      responder->end();
    }).detach();
  });
  RawClient client(server->port());

  client.send(get("/"));

  EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"));
}

TEST(HttpServer, ToldThatTheClientWentAway) {
  Channel<std::shared_ptr<Responder>> calls;
  Channel<int> gone;
  const auto server = serve({}, [&](const HttpRequest&, std::shared_ptr<Responder> responder) {
    responder->on_disconnect([&] { gone.try_send(1); });
    calls.try_send(responder);
  });
  auto client = std::make_unique<RawClient>(server->port());
  client->send(get("/"));
  const auto responder = *calls.receive();
  responder->begin_stream(200, {});
  responder->write("a");
  client->read_until("a");

  client->close();

  EXPECT_TRUE(gone.receive_until(std::chrono::steady_clock::now() + 5s));
}

TEST(HttpServer, ToldAtOnceWhenTheClientHadGoneBefore) {
  Channel<std::shared_ptr<Responder>> calls;
  Channel<int> gone;
  const auto server = serve({}, [&](const HttpRequest&, std::shared_ptr<Responder> responder) {
    responder->on_disconnect([&] { gone.try_send(1); });
    calls.try_send(responder);
  });
  auto client = std::make_unique<RawClient>(server->port());
  client->send(get("/"));
  const auto responder = *calls.receive();
  client->close();
  ASSERT_TRUE(gone.receive_until(std::chrono::steady_clock::now() + 5s));

  responder->on_disconnect([&] { gone.try_send(2); });

  EXPECT_EQ(gone.receive_until(std::chrono::steady_clock::now() + 5s), 2);
}

TEST(HttpServer, C19DropsAReaderThatIsTooSlow) {
  HttpServerOptions options;
  options.max_unsent_bytes = 1 << 20;
  Channel<std::shared_ptr<Responder>> calls;
  Channel<int> gone;
  const auto server = serve(options, [&](const HttpRequest&, std::shared_ptr<Responder> responder) {
    responder->on_disconnect([&] { gone.try_send(1); });
    calls.try_send(responder);
  });
  RawClient client(server->port(), 4096);
  client.send(get("/"));
  const auto responder = *calls.receive();
  responder->begin_stream(200, {});

  bool dropped = false;
  for (int i = 0; i < 1000 && !dropped; ++i) {
    responder->write(std::string(64 << 10, 'x'));
    dropped = gone.try_receive().has_value();
  }

  EXPECT_TRUE(dropped || gone.receive_until(std::chrono::steady_clock::now() + 5s));
}

TEST(HttpServer, C19DropsAReaderThatStopsReading) {
  HttpServerOptions options;
  options.write_timeout = 30ms;
  options.max_unsent_bytes = 64 << 20;
  Channel<int> gone;
  const auto server = serve(options, [&](const HttpRequest&, const std::shared_ptr<Responder>& responder) {
    responder->on_disconnect([&] { gone.try_send(1); });
    responder->begin_stream(200, {});
    responder->write(std::string(32 << 20, 'x'));
  });
  RawClient client(server->port(), 4096);

  client.send(get("/"));

  EXPECT_TRUE(gone.receive_until(std::chrono::steady_clock::now() + 5s));
}

TEST(HttpServer, TellsAnIdleAnswer) {
  Channel<int> idle;
  const auto server = serve({}, [&](const HttpRequest&, const std::shared_ptr<Responder>& responder) {
    responder->on_idle(1ms, [&idle, weak = std::weak_ptr(responder)] {
      if (idle.size() < 3) {
        idle.try_send(1);
      } else if (const auto live = weak.lock()) {
        live->send({200, {}, "done"});
      }
    });
  });
  RawClient client(server->port());

  client.send(get("/"));

  EXPECT_THAT(client.read_until("done"), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(idle.size(), 3U);
}

TEST(HttpServer, SpreadsConnectionsOverItsLoops) {
  HttpServerOptions options;
  options.shards = 3;
  Channel<std::thread::id> threads;
  const auto server = serve(options, [&](HttpRequest request, const std::shared_ptr<Responder>& responder) {
    threads.try_send(std::this_thread::get_id());
    echo(std::move(request), responder);
  });
  std::set<std::thread::id> seen;

  for (int i = 0; i < 3; ++i) {
    RawClient client(server->port());
    client.send(get("/x"));
    client.read_until("/x");
    seen.insert(*threads.receive());
  }

  EXPECT_EQ(seen.size(), 3U);
}

/// Nobody looks for a free port and binds it later.
TEST(HttpServer, C25ManyServersStartAtOnceEachOnAPortOfItsOwn) {
  for (int round = 0; round < 25; ++round) {
    std::vector<std::future<std::unique_ptr<HttpServer>>> starting;
    for (int i = 0; i < 32; ++i) {
      starting.push_back(std::async(std::launch::async, [] { return serve({}); }));
    }
    std::vector<std::unique_ptr<HttpServer>> servers;
    std::set<int> ports;
    for (auto& one : starting) {
      servers.push_back(one.get());
      ports.insert(servers.back()->port());
    }

    EXPECT_EQ(ports.size(), 32U);
    for (const int port : {*ports.begin(), *ports.rbegin()}) {
      RawClient client(port);
      client.send(get("/own"));
      EXPECT_THAT(client.read_until("/own"), HasSubstr("200 OK"));
    }
  }
}

TEST(HttpServer, SaysThatThePortIsInUse) {
  const auto server = serve({});
  HttpServerOptions options;
  options.port = server->port();

  const auto second = HttpServer::start(options, echo);

  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("in use"));
}

TEST(HttpServer, RefusesConnectionsOverTheLimit) {
  HttpServerOptions options;
  options.max_connections = 1;
  const auto server = serve(options);
  RawClient first(server->port());
  first.send(get("/1"));
  first.read_until("/1");

  RawClient second(server->port());

  EXPECT_THAT(second.read_all(), StartsWith("HTTP/1.1 503 "));
}

TEST(HttpServer, FinishesTheAnswersInProgress) {
  Channel<std::shared_ptr<Responder>> calls;
  const auto server =
      serve({}, [&](const HttpRequest&, std::shared_ptr<Responder> responder) { calls.try_send(responder); });
  RawClient client(server->port());
  RawClient idle(server->port());
  client.send(get("/"));
  const auto responder = *calls.receive();

  auto finished = std::async(std::launch::async, [&] { server->finish(5s); });
  EXPECT_THAT(idle.read_all(), IsEmpty());
  responder->send({200, {}, "last"});
  EXPECT_THAT(client.read_all(), HasSubstr("last"));
  client.close();
  finished.get();

  EXPECT_EQ(server->connections(), 0);
}

TEST(HttpServer, MayEndWhileAnswersAreBeingMade) {
  Channel<std::shared_ptr<Responder>> calls;
  Channel<int> gone;
  auto server = serve({}, [&](const HttpRequest&, std::shared_ptr<Responder> responder) {
    responder->on_disconnect([&] { gone.try_send(1); });
    calls.try_send(responder);
  });
  RawClient client(server->port());
  client.send(get("/"));
  const auto responder = *calls.receive();

  server.reset();
  responder->write("late");
  responder->end();

  EXPECT_EQ(gone.size(), 1U);
  EXPECT_THAT(client.read_all(), IsEmpty());
}

TEST(HttpClient, GetsPiecesAsTheyArrive) {
  Channel<std::shared_ptr<Responder>> calls;
  const auto server = serve({}, [&](const HttpRequest&, std::shared_ptr<Responder> responder) {
    responder->begin_stream(200, {});
    responder->write("one");
    calls.try_send(responder);
  });
  HttpClient client("127.0.0.1", server->port());
  std::vector<std::string> pieces;

  const auto answer = client.send({"GET", "/", {}, "", ""}, 5s, [&](std::string_view piece) {
    pieces.emplace_back(piece);
    if (pieces.size() == 1) {
      const auto responder = *calls.receive();
      responder->write("two");
      responder->end();
    }
    return true;
  });

  EXPECT_TRUE(answer.ok());
  EXPECT_THAT(pieces, ElementsAre("one", "two"));
}

TEST(HttpClient, SaysWhenNothingListensOrAnswers) {
  const auto server = serve({}, [](const HttpRequest&, const std::shared_ptr<Responder>&) {});
  const int port = server->port();
  HttpClient waiting("127.0.0.1", port);
  EXPECT_THAT(waiting.send({"GET", "/", {}, "", ""}, 30ms).error().message, HasSubstr("within 30 ms"));

  server->finish(1s);
  HttpClient refused("127.0.0.1", port);

  EXPECT_THAT(refused.send({"GET", "/", {}, "", ""}, 5s).error().message, HasSubstr("cannot connect"));
}

TEST(Proxy, IsNotAskedForWhatTheListHas) {
  EXPECT_TRUE(is_listed("a.org, .Example.com", "www.example.com"));
  EXPECT_TRUE(is_listed("a.org,.example.com", "example.com"));
  EXPECT_TRUE(is_listed("*.example.com", "hub.EXAMPLE.com"));
  EXPECT_TRUE(is_listed("*", "any"));
  EXPECT_TRUE(is_listed("10.0.0.1", "10.0.0.1"));
  EXPECT_FALSE(is_listed("example.com", "badexample.com"));
  EXPECT_FALSE(is_listed("", "a"));
  EXPECT_FALSE(is_listed(",,", "a"));
}

TEST(Proxy, MayWantAPassword) {
  EXPECT_EQ(parse_proxy("http://a:81").value().url.port, 81);
  EXPECT_EQ(parse_proxy("a:81/").value().authorization, "");
  const Proxy proxy = parse_proxy("http://Aladdin:open%20sesame@a.org:3128").value();
  EXPECT_EQ(proxy.authorization, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");  // of RFC 7617
  EXPECT_EQ(proxy.url.text(), "http://a.org:3128");
  EXPECT_EQ(parse_proxy("me@a").value().authorization, "Basic bWU6");
  EXPECT_EQ(parse_proxy("me:p@ss:w@[::1]:1").value().url.host, "::1");
  for (const char* wrong : {"https://me:secret@a:1", "socks5://me:secret@a", "http://me:secret@a:port", "me:secret@"}) {
    const auto refused = parse_proxy(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.error().message.find("secret"), std::string::npos);
  }
}

TEST(HttpClient, ParsesUrls) {
  EXPECT_EQ(parse_url("http://a.b:81/v1/").value().path, "/v1");
  EXPECT_EQ(parse_url("http://[::1]:81").value().host, "::1");
  EXPECT_EQ(parse_url("http://a").value().port, 80);
  EXPECT_EQ(parse_url("https://a").value().port, 443);
  EXPECT_EQ(parse_url("https://a?b=/c").value().path, "?b=/c");
  EXPECT_FALSE(parse_url("https://me@a").ok());
  EXPECT_EQ(parse_url("https://me:secret@a:x").error().message, "a URL with a user name is not taken");
  EXPECT_FALSE(parse_url("ftp://a").ok());
  EXPECT_FALSE(parse_url("http://a:x").ok());
  EXPECT_FALSE(parse_url("http://").ok());
}

TEST(SseReader, JoinsEventsThatArriveInPieces) {
  SseReader reader;

  EXPECT_THAT(reader.add("data: {\"a\""), IsEmpty());
  EXPECT_THAT(reader.add(":1}\n"), IsEmpty());
  EXPECT_THAT(reader.add("\n: ping\n\ndata:b\r\n\r\nevent: x\ndata: 1\ndata: 2\n\n"),
              ElementsAre("{\"a\":1}", "b", "1\n2"));
}

}  // namespace
}  // namespace quern
