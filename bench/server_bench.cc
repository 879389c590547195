// What the server adds to an engine. A null model plays the engine: its tokens are fixed and come at once, or at a set
// rate, so that all that is measured is HTTP, JSON and text:  server_bench [MODEL]   (whose tokenizer is used)
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <random>
#include <semaphore>
#include <string>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "apps/hub/resolve.h"
#include "apps/instance.h"
#include "apps/loader_text.h"
#include "base/channel.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/server.h"

namespace quern {
namespace {

using Clock = std::chrono::steady_clock;

/// Every live request gets a token a step.
class NullModel final : public TokenService {
 public:
  explicit NullModel(std::vector<int32_t> tokens) : tokens_(std::move(tokens)), thread_([this] { run(); }) {}
  ~NullModel() override {
    work_.close();
    thread_.join();
  }
  SubmitResult submit(Request request) override {
    work_.try_send(Job{std::move(request)});
    return SubmitResult::accepted;
  }
  void cancel(RequestId id) override { cancelled_.try_send(RequestId(id)); }
  void stop_accepting() override {}
  EngineStats stats() const override { return {}; }

  /// Time between two steps; 0: as fast as it goes.
  void pace(std::chrono::nanoseconds step) { step_ns_ = step.count(); }

 private:
  struct Job {
    Request request;
    int32_t done = 0;
  };

  void run() {
    std::vector<Job> jobs;
    Clock::time_point next{};
    while (true) {
      while (auto job = jobs.empty() ? work_.receive() : work_.try_receive()) {
        if (jobs.empty()) next = Clock::now();
        jobs.push_back(std::move(*job));
      }
      if (jobs.empty()) return;
      while (const auto id = cancelled_.try_receive()) {
        std::erase_if(jobs, [&](Job& job) { return job.request.id == *id && deliver(job, FinishReason::cancelled); });
      }
      next += std::chrono::nanoseconds(step_ns_);
      std::this_thread::sleep_until(next);
      std::erase_if(jobs, [&](Job& job) { return step(job); });
    }
  }

  /// True when it was the last one.
  bool step(Job& job) {
    ++job.done;
    if (job.done == job.request.max_tokens) return deliver(job, FinishReason::length);
    deliver(job, std::nullopt);
    return false;
  }

  bool deliver(const Job& job, std::optional<FinishReason> finish) {
    TokenEvent event;
    event.request = job.request.id;
    event.tokens = {tokens_[static_cast<size_t>(job.done) % tokens_.size()]};
    event.finish = finish;
    event.prompt_tokens = static_cast<int32_t>(job.request.prompt.size());
    event.output_tokens = job.done;
    event.queued_us = 1;
    job.request.sink->deliver(std::move(event));
    return true;
  }

  const std::vector<int32_t> tokens_;
  Channel<Job> work_;
  Channel<RequestId> cancelled_;
  std::atomic<int64_t> step_ns_ = 0;
  std::thread thread_;
};

/// A connection of the client; fails aloud.
class Connection {
 public:
  explicit Connection(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("cannot connect");
  }
  ~Connection() { close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int socket() const { return socket_; }
  void send(std::string_view text) {
    if (::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
      fail("cannot send");
  }
  /// Appends what is there, after waiting for something; false at the end.
  bool receive(std::string& into) {
    char buffer[1 << 16];
    const ssize_t count = recv(socket_, buffer, sizeof buffer, 0);
    if (count > 0) into.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }
  /// One whole answer that names its length.
  void answer() {
    std::string text;
    size_t whole = std::string::npos;
    while (text.size() < whole) {
      if (!receive(text)) fail("an answer was cut off");
      const size_t head = text.find("\r\n\r\n");
      if (whole != std::string::npos || head == std::string::npos) continue;
      if (!text.starts_with("HTTP/1.1 200")) fail("an answer was no 200");
      const size_t length = text.find("Content-Length: ");
      if (length > head) fail("an answer has no length");
      whole = head + 4 + static_cast<size_t>(std::atol(&text[length + 16]));
    }
  }

  [[noreturn]] static void fail(const char* what) {
    fmt::print(stderr, "server_bench: {}: {}\n", what, std::strerror(errno));
    std::exit(1);
  }

 private:
  const int socket_;
};

std::string post(const std::string& body) {
  return fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\n\r\n{}",
      body.size(), body);
}

double percentile(std::vector<double>& values, double part) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

constexpr int clients = 64;

/// Seconds that each of many requests took: Poisson arrivals over 64 threads, each of which makes its own way to ask.
/// Client and server share the machine.
template <typename Make>
std::vector<double> open_loop(double rate, double time_s, Make&& make) {
  std::vector<std::vector<double>> times(clients);
  std::vector<std::thread> threads;
  const auto start = Clock::now() + std::chrono::milliseconds(50);
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      const auto ask = make();
      std::mt19937 random(static_cast<unsigned>(i));
      std::exponential_distribution<double> gap(rate / clients);
      for (double due = gap(random); due < time_s; due += gap(random)) {
        const auto at = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due));
        std::this_thread::sleep_until(at);
        const auto sent = Clock::now();
        ask();
        times[static_cast<size_t>(i)].push_back(std::chrono::duration<double>(Clock::now() - sent).count());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<double> all;
  for (const auto& some : times) all.insert(all.end(), some.begin(), some.end());
  return all;
}

/// Over connections that are kept open.
std::vector<double> over_http(int port, double rate, double time_s) {
  return open_loop(rate, time_s, [port] {
    return [connection = std::make_shared<Connection>(port)] {
      connection->send(post(R"({"prompt":"Once upon a time there was a","max_tokens":1})"));
      connection->answer();
    };
  });
}

class Waiting final : public EventSink {
 public:
  void deliver(TokenEvent event) override {
    if (event.finish) done_.release();
  }
  void wait() { done_.acquire(); }

 private:
  std::binary_semaphore done_{0};
};

/// Without a server.
std::vector<double> over_nothing(NullModel& model, double rate, double time_s) {
  return open_loop(rate, time_s, [&model] {
    return [&model] {
      Request request;
      const auto sink = std::make_shared<Waiting>();
      request.prompt = {1, 2, 3};
      request.max_tokens = 1;
      request.sink = sink;
      model.submit(std::move(request));
      sink->wait();
    };
  });
}

void overhead(int port, NullModel& model) {
  constexpr double rate = 1000;
  over_http(port, rate, 1);
  auto direct = over_nothing(model, rate, 5);
  auto times = over_http(port, rate, 5);
  const double p50 = percentile(times, 0.5) - percentile(direct, 0.5);
  const double p99 = percentile(times, 0.99) - percentile(direct, 0.99);
  fmt::print(
      "HTTP over the engine, 64 connections, {:.0f} requests/s, p50 / p99: {:.0f} / {:.0f} us (must <= 150 / 600 us, "
      "aim 60 / 250 us)\n",
      rate, p50 * 1e6, p99 * 1e6);
}

struct Streamed {
  double seconds = 0;
  int64_t events = 0;
};

/// All streams together; one thread of the client reads them.
Streamed read_streams(int port, int streams, int tokens) {
  const std::string request =
      post(fmt::format(R"({{"prompt":"Hi","max_tokens":{},"stream":true,"ignore_eos":true}})", tokens));
  std::vector<std::unique_ptr<Connection>> connections;
  const int poll = epoll_create1(0);
  for (int i = 0; i < streams; ++i) {
    connections.push_back(std::make_unique<Connection>(port));
    epoll_event event{.events = EPOLLIN, .data = {.u64 = static_cast<uint64_t>(i)}};
    epoll_ctl(poll, EPOLL_CTL_ADD, connections.back()->socket(), &event);
  }
  Streamed result;
  const auto start = Clock::now();
  for (auto& connection : connections) connection->send(request);
  std::string text;
  for (int ended = 0; ended < streams;) {
    epoll_event events[64];
    const int count = epoll_wait(poll, events, 64, 10'000);
    if (count <= 0) Connection::fail("a stream stands still");
    for (int i = 0; i < count; ++i) {
      text.clear();
      if (!connections[events[i].data.u64]->receive(text)) Connection::fail("a stream was cut off");
      for (size_t at = text.find("data: "); at != std::string::npos; at = text.find("data: ", at + 6)) ++result.events;
      if (text.find("data: [DONE]") != std::string::npos) ++ended;
    }
  }
  close(poll);
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.events -= streams;
  return result;
}

void streaming(int port, NullModel& model) {
  constexpr int streams = 256;
  constexpr int tokens = 1500;
  model.pace({});
  read_streams(port, streams, 100);
  const Streamed all = read_streams(port, streams, tokens);
  const double rate = double{streams} * tokens / all.seconds;
  fmt::print("streamed tokens/s, null model, 256 streams ({:.2f} tokens an event): {:.0f}k (must >= 200k, aim 600k)\n",
             double{streams} * tokens / static_cast<double>(all.events), rate * 1e-3);
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

void idle_connections(int port) {
  constexpr int count = 2000;
  std::vector<std::unique_ptr<Connection>> connections;
  connections.reserve(count);
  const int64_t before = resident_bytes();
  for (int i = 0; i < count; ++i) {
    connections.push_back(std::make_unique<Connection>(port));
    connections.back()->send("GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n");
    connections.back()->answer();
  }
  fmt::print("2,000 idle keep-alive connections: {:.1f} MB (must <= 20 MB, aim 8 MB)\n",
             static_cast<double>(resident_bytes() - before) * 1e-6);
}

/// Takes what comes on many connections until it is told to stop, or then no more.
class Drain {
 public:
  explicit Drain(const std::vector<std::unique_ptr<Connection>>& connections) : poll_(epoll_create1(0)) {
    for (const auto& connection : connections) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = connection->socket()}};
      epoll_ctl(poll_, EPOLL_CTL_ADD, connection->socket(), &event);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~Drain() {
    stop_ = true;
    thread_.join();
    close(poll_);
  }
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

 private:
  void run() {
    char buffer[1 << 16];
    while (!stop_) {
      epoll_event events[64];
      const int count = epoll_wait(poll_, events, 64, 50);
      for (int i = 0; i < count; ++i) (void)recv(events[i].data.fd, buffer, sizeof buffer, MSG_DONTWAIT);
    }
  }

  const int poll_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void slow_readers(int port, NullModel& model) {
  constexpr double rate = 500;
  model.pace(std::chrono::milliseconds(50));
  std::vector<std::unique_ptr<Connection>> streams;
  const std::string request = post(R"({"prompt":"Hi","max_tokens":100000,"stream":true,"ignore_eos":true})");
  for (int i = 0; i < 500; ++i) {
    streams.push_back(std::make_unique<Connection>(port));
    const int small = 4096;
    setsockopt(streams.back()->socket(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    streams.back()->send(request);
  }
  auto drain = std::make_unique<Drain>(streams);
  over_http(port, rate, 1);
  auto read = over_http(port, rate, 5);
  drain.reset();
  auto unread = over_http(port, rate, 5);
  const double before = percentile(read, 0.99) * 1e3;
  const double after = percentile(unread, 0.99) * 1e3;
  fmt::print("p99 of others when 500 streams (step 50 ms) are read no more: {:.1f} -> {:.1f} ms (must <= 1.1x)\n",
             before, after);
}

constexpr const char* tool_template =
    "{% if tools %}<|im_start|>system\nYou may call:{% for tool in tools %}\n{{ tool | tojson }}{% endfor "
    "%}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content %}{{ m.content }}{% endif %}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": "
    "{{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// 200 messages of a conversation that calls tools.
Json conversation() {
  std::string messages;
  for (int i = 0; i < 50; ++i) {
    messages += fmt::format(
        R"({}{{"role":"user","content":"What will the weather be in town number {} on Tuesday, and shall I take a coat with me?"}},)"
        R"({{"role":"assistant","tool_calls":[{{"type":"function","id":"call_{}","function":{{"name":"get_weather","arguments":{{"city":"Town {}","days":3}}}}}}]}},)"
        R"({{"role":"tool","tool_call_id":"call_{}","content":"{{\"temperature\": {}, \"sky\": \"cloudy with some sun after noon\"}}"}},)"
        R"({{"role":"assistant","content":"It will be about {} degrees and cloudy, with sun after noon: a light coat is enough."}})",
        i == 0 ? "" : ",", i, i, i, i, i, i);
  }
  std::string tools;
  for (int i = 0; i < 8; ++i) {
    tools += fmt::format(
        R"({}{{"type":"function","function":{{"name":"get_weather{}","description":"The weather of a city in the next days.","parameters":)"
        R"({{"type":"object","properties":{{"city":{{"type":"string"}},"days":{{"type":"integer"}}}},"required":["city"]}}}}}})",
        i == 0 ? "" : ",", i);
  }
  return Json::parse(fmt::format(R"({{"messages":[{}],"tools":[{}],"add_generation_prompt":true}})", messages, tools))
      .value();
}

void long_chat(const Tokenizer& tokenizer) {
  const ChatTemplate chat = ChatTemplate::parse(tool_template).value();
  const Json asked = conversation();
  double best = 1e9;
  size_t count = 0;
  for (int i = 0; i < 20; ++i) {
    const int64_t start = now_us();
    const auto pieces = chat.render(asked).value();
    count = tokenizer.encode_pieces(pieces, false).value().size();
    best = std::min(best, static_cast<double>(now_us() - start) * 1e-3);
  }
  fmt::print(
      "a chat of 200 messages with tools ({} tokens) rendered and tokenized: {:.2f} ms (must <= 3 ms, aim 1 ms)\n",
      count, best);
}

int run(const std::string& model) {
  set_log_level(LogLevel::error);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const std::string path = model.empty() ? default_model_path().value() : model;
  const auto checkpoint = Checkpoint::open(path).value();
  const auto tokenizer = load_tokenizer(*checkpoint).value();
  NullModel engine(tokenizer->encode(" once upon a time there was a very small model", {}).value());
  ServerOptions options;
  options.http.max_connections = 8192;
  options.model_names = {"null"};
  options.max_model_len = 1 << 20;
  Server server(options, engine, tokenizer, nullptr);
  const Status started = server.start();
  if (!started.ok()) Connection::fail(started.error().message.c_str());
  idle_connections(server.port());
  overhead(server.port(), engine);
  streaming(server.port(), engine);
  slow_readers(server.port(), engine);
  long_chat(*tokenizer);
  return 0;
}

}  // namespace
}  // namespace quern

int main(int count, char** words) { return quern::run(count > 1 ? words[1] : ""); }
