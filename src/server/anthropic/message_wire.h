// MessageWire: answers as Anthropic's Messages API has them: a message of blocks, whole or as events. One answer's
// thread.
#pragma once

#include <string>
#include <string_view>

#include "server/wire.h"

namespace quern {

class MessageWire final : public Wire {
 public:
  MessageWire(const Generation& generation, std::string id);

  void first_chunk(std::string& out, int32_t index, const Prompt& prompt, const std::vector<TokenLogprobs>& scores,
                   const Usage& usage) override;
  void chunk(std::string& out, int32_t index, const AnswerPiece& piece, const Usage& usage) override;
  void finish(std::string& out, const Usage& usage) override;
  void error(std::string& out, const ApiError& error) override;
  std::string whole(const std::vector<WholeChoice>& choices, const Usage& usage) override;

 private:
  enum class Block : uint8_t { none, text, thinking, tool };

  void open(std::string& out, Block block, const ReplyPiece* call);
  void close(std::string& out);
  void delta(std::string& out, std::string_view type, std::string_view member, std::string_view text) const;
  void say(std::string& out, const ReplyPiece& piece);
  std::string message(std::string_view content, const std::string& stop, const Usage& usage) const;

  const std::string model_;
  const std::string id_;
  Block block_ = Block::none;
  int blocks_ = 0;
  bool called_ = false;
  AnswerEnd end_;
};

/// An error as this protocol has it.
std::string message_error_body(const ApiError& error);

}  // namespace quern
