// FixedHost: one model over an engine that somebody else owns and that is always there. Any thread.
#pragma once

#include <memory>
#include <utility>

#include "server/models/host.h"

namespace quern {

class BorrowedService final : public TokenService {
 public:
  explicit BorrowedService(TokenService& owned) : owned_(owned) {}
  SubmitResult submit(Request request) override { return owned_.submit(std::move(request)); }
  void cancel(RequestId id) override { owned_.cancel(id); }
  void stop_accepting() override { owned_.stop_accepting(); }
  EngineStats stats() const override { return owned_.stats(); }
  void reset_prefix_cache() override { owned_.reset_prefix_cache(); }

 private:
  TokenService& owned_;
};

class FixedHost final : public ModelHost {
 public:
  FixedHost(ServerOptions options, TokenService& engine, std::shared_ptr<const Tokenizer> tokenizer,
            std::shared_ptr<const ChatTemplate> chat_template)
      : options_(std::move(options)),
        engine_(engine),
        tokenizer_(std::move(tokenizer)),
        chat_template_(std::move(chat_template)) {}

  ModelCard card() const {
    return {options_.model_names, options_.model_root, options_.output, options_.max_model_len, 0, true};
  }
  Result<ModelParts> load(const std::string&) override {
    return ModelParts{options_, std::make_unique<BorrowedService>(engine_), tokenizer_, chat_template_};
  }

 private:
  const ServerOptions options_;
  TokenService& engine_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const ChatTemplate> chat_template_;
};

}  // namespace quern
