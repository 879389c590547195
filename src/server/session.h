// Session: one generating request from its tokens to the end of its answer. Events come from the engine thread; all
// else happens on the shard of the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/call.h"
#include "server/live_session.h"
#include "server/models/served_model.h"
#include "server/openai/answer.h"
#include "server/openai/generation.h"
#include "server/wire.h"

namespace quern {

/// A number that keeps the cached prefixes of tenants and salts apart: 0 for neither, else a hash that cannot be aimed
/// at.
uint64_t salt_number(const std::string& tenant, const std::string& salt);
/// What is asked, and what the key adds.
int32_t priority_of(const Call& call, int32_t asked);
/// The time by which a request has to be done, by the server's limit and its own X-Request-Timeout-Ms; 0: none.
int64_t deadline_of(const Call& call, const ServerOptions& options);

class Session final : public LiveSession, public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<Call> call, Generation generation, std::shared_ptr<ServedModel> model,
          std::function<void()> on_end);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void start() override;
  void abort(ApiError error) override;

 private:
  class Sink;

  struct Choice {
    Choice(Answer made, int32_t prompt_index) : answer(std::move(made)), prompt(prompt_index) {}
    AnswerTimes times(int64_t arrived_us) const {
      return {arrived_us, arrived_us + queued_us, first_token_us, last_token_us, cached_tokens};
    }
    Answer answer;
    int32_t prompt;
    WholeChoice whole;  // when not streaming
    bool submitted = false;
    int64_t queued_us = 0;
    int64_t first_token_us = 0;
    int64_t last_token_us = 0;
    int32_t cached_tokens = 0;
  };

  void submit_all();
  bool submit(int32_t index);
  Request make_request(int32_t index);
  bool scores_prompt(int32_t index) const;
  std::vector<WholeChoice> best_choices();
  void answer_without_engine();
  void deliver(TokenEvent event);
  void take(const TokenEvent& event);
  void take_piece(int32_t index, AnswerPiece piece);
  void note_times(Choice& choice, const TokenEvent& event);
  void note_end(const Choice& choice, const TokenEvent& event);
  void fail_from(const TokenEvent& event);
  void fail(const ApiError& error);
  void refuse(const ApiError& error);
  void begin_stream();
  void keep_alive();
  void disconnected();
  void complete();
  void log_end();
  void end();
  void cancel_rest();
  int32_t index_of(RequestId id) const { return static_cast<int32_t>(quern::index(id) - first_request_); }

  const std::shared_ptr<Call> call_;
  const Generation generation_;
  const std::shared_ptr<ServedModel> model_;
  const std::function<void()> on_end_;
  const std::unique_ptr<Wire> wire_;
  const uint64_t first_request_;
  std::vector<Choice> choices_;                     // best_of for each prompt
  std::vector<std::vector<TokenLogprobs>> scores_;  // by prompt: of its tokens but the first, if they are wanted
  std::string out_;                                 // chunks of the event being taken
  Usage usage_;
  size_t open_choices_ = 0;
  int32_t most_tokens_ = 0;    // of one choice
  std::string finish_reason_;  // of the choice that ended last
  bool streaming_ = false;     // the head of the stream is out
  bool ended_ = false;
};

}  // namespace quern
