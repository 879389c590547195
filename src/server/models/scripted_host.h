// For tests: models whose engines answer with a script, and a record of when each was made and destroyed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/channel.h"
#include "base/guarded.h"
#include "server/models/host.h"
#include "server/scripted_service.h"

namespace quern {

class ScriptedHost final : public ModelHost {
 public:
  /// What every model is given but its names; answers are "NAME says hi".
  explicit ScriptedHost(ServerOptions options = {}) : options_(std::move(options)) {
    options_.end_tokens = {ByteTokenizer::kEos};
    if (options_.max_model_len == 0) options_.max_model_len = 200;
  }

  static ModelCard card(const std::string& name, int64_t bytes = 1, bool pinned = false) {
    ModelCard made;
    made.names = {name};
    made.max_model_len = 200;
    made.bytes = bytes;
    made.preload = made.pinned = pinned;
    return made;
  }

  Result<ModelParts> load(const std::string& name) override {
    const auto [held, fails] =
        state_.with([&](State& state) { return std::pair(state.held, state.failing.contains(name)); });
    started_.try_send(std::string(name));
    if (held) steps_.receive();
    if (fails) return Error{"the file of " + name + " is broken"};
    ModelParts parts;
    parts.options = options_;
    parts.options.model_names = {name};
    parts.tokenizer = std::make_shared<ByteTokenizer>();
    auto chat = ChatTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}");
    parts.chat_template = std::make_shared<const ChatTemplate>(std::move(chat).value());
    parts.bytes = 1;
    auto service = std::make_unique<Service>(name, *this);
    state_.with([&](State& state) {
      ++state.loads;
      state.alive.insert(name);
      state.services[name] = &service->scripted;
      if (state.held_services) service->scripted.hold();
    });
    parts.engine = std::move(service);
    return parts;
  }

  /// From now on a load waits for step().
  void hold() {
    state_.with([](State& state) { state.held = true; });
  }
  void step() { steps_.try_send(1); }
  void release() {
    state_.with([](State& state) { state.held = false; });
    step();
  }
  /// Engines that are made from now on wait for steps.
  void hold_services() {
    state_.with([](State& state) { state.held_services = true; });
  }
  void fail(const std::string& name, bool fails = true) {
    state_.with([&](State& state) { fails ? void(state.failing.insert(name)) : void(state.failing.erase(name)); });
  }
  /// The engine of a model that lives.
  ScriptedService& service(const std::string& name) {
    return *state_.with([&](State& state) { return state.services.at(name); });
  }
  /// Steps of a held engine, which lives until they are taken though its last answer may end with one.
  void step_service(const std::string& name, int count) {
    state_.with([&](State& state) { state.services.at(name)->step(count); });
  }
  std::set<std::string> alive() {
    return state_.with([](State& state) { return state.alive; });
  }
  int loads() {
    return state_.with([](State& state) { return state.loads; });
  }
  /// The name of the next model whose load began, or that was destroyed; "" after a long time.
  std::string next_started() { return next(started_); }
  std::string next_destroyed() { return next(destroyed_); }

 private:
  struct State {
    bool held = false;
    bool held_services = false;
    int loads = 0;
    std::set<std::string> failing;
    std::set<std::string> alive;
    std::map<std::string, ScriptedService*> services;
  };
  struct Service final : TokenService {
    Service(std::string model, ScriptedHost& from)
        : scripted([model](const Request&) { return model + " says hi"; }), name(std::move(model)), host(from) {}
    ~Service() override {
      host.state_.with([&](State& state) { state.alive.erase(name); });
      host.destroyed_.try_send(std::string(name));
    }
    SubmitResult submit(Request request) override { return scripted.submit(std::move(request)); }
    void cancel(RequestId id) override { scripted.cancel(id); }
    void stop_accepting() override { scripted.stop_accepting(); }
    EngineStats stats() const override { return scripted.stats(); }

    ScriptedService scripted;
    const std::string name;
    ScriptedHost& host;
  };

  static std::string next(Channel<std::string>& names) {
    return names.receive_until(std::chrono::steady_clock::now() + std::chrono::seconds(20)).value_or("");
  }

  ServerOptions options_;
  Guarded<State> state_;
  Channel<int> steps_;
  Channel<std::string> started_;
  Channel<std::string> destroyed_;
};

}  // namespace quern
