// ResponseWire: answers as the Responses API has them: a list of items, whole or as events. One answer's thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/responses/responses.h"
#include "server/wire.h"
#include "text/tokenizer.h"

namespace quern {

class ResponseWire final : public Wire {
 public:
  ResponseWire(const Generation& generation, const TextModel& model);

  void first_chunk(std::string& out, int32_t index, const Prompt& prompt, const std::vector<TokenLogprobs>& scores,
                   const Usage& usage) override;
  void chunk(std::string& out, int32_t index, const AnswerPiece& piece, const Usage& usage) override;
  void finish(std::string& out, const Usage& usage) override;
  void error(std::string& out, const ApiError& error) override;
  std::string whole(const std::vector<WholeChoice>& choices, const Usage& usage) override;

 private:
  enum class Kind : uint8_t { none, reasoning, message, call };
  /// The item that is being written.
  struct Item {
    Kind kind = Kind::none;
    std::string id;
    std::string text;     // or the arguments of a call
    std::string call_id;  // of a call
    std::string name;     // of a call
    Json::Array logprobs;
  };

  void event(std::string& out, std::string_view type, std::string_view more);
  std::string place(bool content) const;
  void say(std::string& out, const ReplyPiece& piece);
  void open(std::string& out, Kind kind, const ReplyPiece& piece);
  void open_content(std::string& out);
  void close(std::string& out, std::string_view status);
  Json content_part() const;
  Json item_object(std::string_view status) const;
  Json::Array take_logprobs(std::string_view text);
  Json logprob(int32_t token, float value) const;
  void note_logprobs(const std::vector<ShownToken>& shown);
  void end_items(std::string& out);
  /// The response object as it is now.
  Json response(std::string_view status, const Usage* usage) const;
  void keep(const Json& response) const;

  const Generation& generation_;
  const ResponsePlan& plan_;
  const Tokenizer& tokenizer_;
  bool begun_ = false;
  int64_t events_ = 0;
  Json::Array output_;  // finished items
  Item item_;
  std::vector<ShownToken> unshown_;  // tokens whose text has not been said
  AnswerEnd end_;
};

}  // namespace quern
