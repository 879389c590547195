// ReplyParser: the text of one reply, as it arrives -> content, reasoning and calls. What comes out does not depend on
// how the text is cut. Thread: whoever owns the answer.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/reply/reply.h"
#include "text/reply/reply_format.h"

namespace quern {

class ReplyParser {
 public:
  /// `format` must outlive the parser.
  ReplyParser(const ReplyFormat& format, const ReplyOptions& options);
  ReplyParser(ReplyParser&&) noexcept;
  ReplyParser& operator=(ReplyParser&&) noexcept;
  ~ReplyParser();

  /// Text as the detokenizer gives it; special tokens that are markers of the format stand in it with kSpecialMark.
  std::vector<ReplyPiece> add(std::string_view text);
  /// What was held back; at the end of the reply.
  std::vector<ReplyPiece> finish();
  /// Nothing more will come of it: the one call that was wanted is there.
  bool done() const;
  /// Whether the reasoning is being read.
  bool thinking() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quern
