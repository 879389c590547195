#include "text/constraint/matcher.h"

#include <exception>

#include "base/check.h"
#include "text/constraint/budget.h"

namespace quern {
namespace {

// A mask is filled while a batch computes its step: beyond these its request has to end.
constexpr int64_t kFillBytes = int64_t{256} << 20;
constexpr double kFillCpuS = 0.25;

int64_t size_of(const xgrammar::CompiledGrammar& grammar) { return static_cast<int64_t>(grammar.MemorySizeBytes()); }

}  // namespace

class XgrammarMatcher final : public ConstraintMatcher {
 public:
  explicit XgrammarMatcher(std::shared_ptr<const CompiledConstraint> constraint)
      : constraint_(std::move(constraint)), matcher_(constraint_->grammar_, constraint_->end_tokens_) {}

  bool accept(int32_t token) override {
    const AllocationBudget budget(kFillBytes, kFillCpuS);
    try {
      if (failed_ || !matcher_.AcceptToken(token)) return false;
      const auto& leads = constraint_->sets_->surrogate_lead;
      after_lead_.push_back((leads[static_cast<size_t>(token) / 32] >> (token % 32) & 1U) != 0);
      return true;
    } catch (const std::exception&) {
      failed_ = true;
      return false;
    }
  }

  void rollback(int count) override {
    CHECK(count >= 0 && count <= static_cast<int>(after_lead_.size()));
    if (count == 0 || failed_) return;
    try {
      matcher_.Rollback(count);
      after_lead_.resize(after_lead_.size() - static_cast<size_t>(count));
    } catch (const std::exception&) {
      failed_ = true;
    }
  }

  bool fill(std::vector<uint32_t>& words) override {
    const AllocationBudget budget(kFillBytes, kFillCpuS);
    try {
      if (failed_) return false;
      words.resize(constraint_->blocked_.size());
      int64_t shape[1] = {static_cast<int64_t>(words.size())};
      DLTensor tensor{};
      tensor.data = words.data();
      tensor.device = {kDLCPU, 0};
      tensor.ndim = 1;
      tensor.dtype = xgrammar::GetBitmaskDLType();
      tensor.shape = shape;
      matcher_.FillNextTokenBitmask(&tensor);
    } catch (const std::exception&) {
      failed_ = true;
      return false;
    }
    for (size_t i = 0; i < words.size(); ++i) words[i] &= ~constraint_->blocked_[i];
    if (after_lead_.empty()) drop_unseen_spaces(words);
    if (!after_lead_.empty() && after_lead_.back()) drop_surrogates(words);
    return true;
  }

  bool complete() const override { return !failed_ && matcher_.IsCompleted(); }

 private:
  /// At the start the detokenizer drops one space that the grammar would count; unless there is no other way.
  void drop_unseen_spaces(std::vector<uint32_t>& words) const {
    const std::vector<uint32_t>& spaced = constraint_->sets_->spaced;
    uint32_t left = 0;
    for (size_t i = 0; i < spaced.size(); ++i) left |= words[i] & ~spaced[i];
    for (size_t i = 0; left != 0 && i < spaced.size(); ++i) words[i] &= ~spaced[i];
  }

  /// XGrammar's classes of characters have the halves of surrogate pairs, which UTF-8 has not.
  void drop_surrogates(std::vector<uint32_t>& words) const {
    const std::vector<uint32_t>& tails = constraint_->sets_->surrogate_tail;
    for (size_t i = 0; i < words.size(); ++i) words[i] &= ~tails[i];
  }

  const std::shared_ptr<const CompiledConstraint> constraint_;
  xgrammar::GrammarMatcher matcher_;
  std::vector<bool> after_lead_;  // of each accepted token: it may begin a surrogate
  bool failed_ = false;
};

CompiledConstraint::CompiledConstraint(xgrammar::CompiledGrammar grammar, std::vector<int32_t> end_tokens,
                                       std::vector<uint32_t> blocked, std::shared_ptr<const TokenSets> sets)
    : grammar_(std::move(grammar)),
      end_tokens_(std::move(end_tokens)),
      blocked_(std::move(blocked)),
      sets_(std::move(sets)),
      bytes_(size_of(grammar_)) {}

std::unique_ptr<ConstraintMatcher> CompiledConstraint::start() const {
  return std::make_unique<XgrammarMatcher>(shared_from_this());
}

}  // namespace quern
