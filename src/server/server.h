// Server: OpenAI's HTTP API over an engine. Any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/result.h"
#include "server/models/keeper.h"
#include "server/options.h"
#include "server/token_service.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quern {

class Server {
 public:
  /// One model over `engine`, which must outlive the server. Without a chat template /v1/chat/completions is refused.
  Server(ServerOptions options, TokenService& engine, std::shared_ptr<const Tokenizer> tokenizer,
         std::shared_ptr<const ChatTemplate> chat_template);
  /// The models of `cards`, as `host` makes them; the first one is for requests that name none. `host` outlives the
  /// server.
  Server(ServerOptions options, const KeeperOptions& keeping, std::vector<ModelCard> cards, ModelHost& host);
  /// Closes all connections; unfinished requests are cancelled.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Opens the port. Until start() is done, /health and everything that needs a key get 503.
  Status listen();
  /// Opens the port, unless that was done, and loads what is to be there at start; then calls `before`, if there
  /// is one, and requests are answered.
  Status start(const std::function<void()>& before = {});
  /// After listen().
  int port() const;
  /// Other keys, from now on; who keeps theirs keeps what is used of their limits.
  void set_keys(std::vector<ApiKey> keys);
  /// /health and new requests get 503 from now on; running ones go on. Returns when all are answered, or at the
  /// deadline, when the rest end with an error, but not before `open_until`. True when none had to.
  bool drain(std::chrono::steady_clock::time_point deadline, std::chrono::steady_clock::time_point open_until = {});

 private:
  class Core;
  std::unique_ptr<ModelHost> host_;  // of one model
  std::shared_ptr<Core> core_;       // shared with sessions
};

}  // namespace quern
