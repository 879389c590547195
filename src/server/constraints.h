// Constraints: compiles what requests ask for on threads of its own, so that tokenizing never waits for a hard one, and
// makes the masks of their answers on others, so that no mask waits for compiling. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "engine/request.h"
#include "server/text_pool.h"
#include "text/constraint.h"

namespace quern {

class Constraints {
 public:
  Constraints(std::shared_ptr<const Tokenizer> tokenizer, int32_t vocab_size, std::vector<int32_t> end_tokens);

  using Done = std::function<void(ConstraintCompiler::Compiled)>;
  /// Calls `done` once: at once when the answer is known, else from another thread. False when too many wait; it is
  /// never called then.
  bool compile(const ConstraintSpec& spec, Done done);
  /// For one answer.
  std::shared_ptr<TokenMask> mask(const Constraint& constraint) const;
  /// Ends the threads: what waits is refused, and masks that are asked for later fail.
  void stop();

 private:
  ConstraintCompiler compiler_;
  std::atomic<bool> stopping_ = false;
  std::unique_ptr<TextPool> compile_pool_;
  std::shared_ptr<TextPool> mask_pool_;  // masks know it weakly, as the engine may keep them longer
};

}  // namespace quern
