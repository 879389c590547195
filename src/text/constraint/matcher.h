// A compiled constraint and its matchers over XGrammar. The only headers of XGrammar are here and in the two files
// beside.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>
#include <xgrammar/xgrammar.h>

#include "text/constraint.h"

namespace quern {

/// Tokens of a vocabulary, as bits.
struct TokenSets {
  std::vector<uint32_t> spaced;  // their first character, a space, is not seen at the start of an answer; may be empty
  std::vector<uint32_t> surrogate_lead;  // end with the byte 0xED
  std::vector<uint32_t> surrogate_tail;  // begin with what after that byte would be no character
};

class CompiledConstraint final : public Constraint, public std::enable_shared_from_this<CompiledConstraint> {
 public:
  /// `blocked`: bits of tokens that never follow.
  CompiledConstraint(xgrammar::CompiledGrammar grammar, std::vector<int32_t> end_tokens, std::vector<uint32_t> blocked,
                     std::shared_ptr<const TokenSets> sets);

  std::unique_ptr<ConstraintMatcher> start() const override;
  int64_t bytes() const override { return bytes_; }

 private:
  friend class XgrammarMatcher;

  const xgrammar::CompiledGrammar grammar_;
  const std::vector<int32_t> end_tokens_;
  const std::vector<uint32_t> blocked_;
  const std::shared_ptr<const TokenSets> sets_;
  const int64_t bytes_;
};

}  // namespace quern
