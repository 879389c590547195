#include "server/constraints.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

namespace quern {
namespace {

constexpr size_t kMostWaiting = 64;

int threads_for(int cores_per_thread, int most) {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / cores_per_thread, 1, most);
}

/// Runs a matcher on the pool. The engine asks for one mask at a time.
class PooledMask final : public TokenMask, public std::enable_shared_from_this<PooledMask> {
 public:
  PooledMask(std::unique_ptr<ConstraintMatcher> matcher, const std::shared_ptr<TextPool>& pool)
      : matcher_(std::move(matcher)), pool_(pool) {}

  void advance(std::vector<int32_t> tokens, std::function<void(std::optional<Words>)> done) override {
    const auto pool = pool_.lock();
    if (!pool ||
        !pool->try_run([self = shared_from_this(), tokens = std::move(tokens), done] { done(self->next(tokens)); })) {
      done(std::nullopt);
    }
  }
  void rollback(int count) override { matcher_->rollback(count); }

 private:
  std::optional<Words> next(const std::vector<int32_t>& tokens) {
    for (const int32_t token : tokens) {
      if (!matcher_->accept(token)) return std::nullopt;
    }
    Words words;
    if (!matcher_->fill(words)) return std::nullopt;
    return words;
  }

  const std::unique_ptr<ConstraintMatcher> matcher_;
  const std::weak_ptr<TextPool> pool_;
};

}  // namespace

Constraints::Constraints(std::shared_ptr<const Tokenizer> tokenizer, int32_t vocab_size,
                         std::vector<int32_t> end_tokens)
    : compiler_(std::move(tokenizer), vocab_size, std::move(end_tokens)),
      compile_pool_(std::make_unique<TextPool>(threads_for(8, 4), kMostWaiting)),
      mask_pool_(std::make_shared<TextPool>(threads_for(4, 8), std::numeric_limits<size_t>::max())) {}

bool Constraints::compile(const ConstraintSpec& spec, Done done) {
  if (auto known = compiler_.cached(spec)) {
    done(std::move(*known));
    return true;
  }
  return compile_pool_->try_run([this, spec, done = std::move(done)] {
    done(stopping_ ? ConstraintCompiler::Compiled(Error{"the server is shutting down"}) : compiler_.compile(spec));
  });
}

std::shared_ptr<TokenMask> Constraints::mask(const Constraint& constraint) const {
  return std::make_shared<PooledMask>(constraint.start(), mask_pool_);
}

void Constraints::stop() {
  stopping_ = true;
  compile_pool_.reset();
  mask_pool_.reset();
}

}  // namespace quern
