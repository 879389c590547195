// PoolingSession: one request for vectors or scores, from its tokens to its answer. A few of its texts are with the
// engine at a time, so that a request with many neither fills the queue nor is refused for it. Events come from the
// engine thread; all else happens on the shard of the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "server/call.h"
#include "server/live_session.h"
#include "server/models/served_model.h"
#include "server/openai/pooling.h"

namespace quern {

class PoolingSession final : public LiveSession, public std::enable_shared_from_this<PoolingSession> {
 public:
  PoolingSession(std::shared_ptr<Call> call, PoolingCall asked, std::shared_ptr<ServedModel> model,
                 std::function<void()> on_end);
  ~PoolingSession() override;
  PoolingSession(const PoolingSession&) = delete;
  PoolingSession& operator=(const PoolingSession&) = delete;

  void start() override;
  void abort(ApiError error) override;

 private:
  class Sink;

  std::optional<ApiError> spend();
  void submit_more();
  Request make_request(size_t index);
  void take(const TokenEvent& event);
  void note_end(const TokenEvent& event);
  void complete();
  void fail(const ApiError& error);
  void disconnected();
  void end();

  const std::shared_ptr<Call> call_;
  PoolingCall asked_;
  const std::shared_ptr<ServedModel> model_;
  const std::function<void()> on_end_;
  const uint64_t first_request_;
  std::vector<std::vector<float>> vectors_;
  std::vector<bool> running_;
  size_t next_ = 0;  // the first text that was not submitted
  size_t in_flight_ = 0;
  size_t finished_ = 0;
  bool ended_ = false;
};

}  // namespace quern
