// Constraint: what an answer may look like (a JSON schema, a regular expression, a grammar, tags in free text),
// compiled for one tokenizer; ConstraintMatcher: where one answer is in it. XGrammar does the work, behind this header.
//
// Tool calls use it like this. The format of the calls becomes a structural tag (text/constraint/tags.h has its parts):
//   required, or one named tool:  tags::document(tags::tag("<tool_call>", tags::json(schema_of_the_call),
//   "</tool_call>")) auto, a lazy grammar:         tags::document(tags::triggered({"<tool_call>"}, {one tag for each
//   tool}))
// where text is free until a trigger appears, from there on the tag's content is forced, and after it text is free
// again. The parser of a chat request puts ConstraintSpec{ConstraintSpec::Kind::structural_tag, text} into
// Generation::constraint; compiling, caching, masks and the end of the answer follow from that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace quern {

/// What is asked for, as text. Equal specs are one constraint.
struct ConstraintSpec {
  enum class Kind : uint8_t {
    json_object,     // any JSON object
    json_schema,     // `text`: the schema
    regex,           // `text`: the answer matches it from its first to its last character
    choice,          // one of `choices`
    grammar,         // `text`: EBNF or GBNF with a rule `root`, or Lark with a rule `start`
    structural_tag,  // `text`: XGrammar's description of tags, as JSON
  };
  Kind kind = Kind::json_object;
  std::string text = {};
  std::vector<std::string> choices = {};
  bool strict = false;   // json_schema: keywords that nobody knows are refused too
  bool compact = false;  // JSON in one line: "," and ":" are followed by one space, nothing else is free

  bool operator==(const ConstraintSpec&) const = default;
};

/// One answer's way through a constraint. One thread at a time.
class ConstraintMatcher {
 public:
  virtual ~ConstraintMatcher() = default;
  /// False when the constraint does not allow the token here; nothing has changed then.
  virtual bool accept(int32_t token) = 0;
  /// Takes back the last `count` accepted tokens.
  virtual void rollback(int count) = 0;
  /// Bit i of word i / 32: token i may follow. End tokens may when the answer can end here; tokens that no text
  /// stands for, never. False when it fails or takes too long: the answer cannot go on.
  virtual bool fill(std::vector<uint32_t>& words) = 0;
  /// Whether the answer may end here.
  virtual bool complete() const = 0;
};

/// Immutable; any thread.
class Constraint {
 public:
  virtual ~Constraint() = default;
  virtual std::unique_ptr<ConstraintMatcher> start() const = 0;
  virtual int64_t bytes() const = 0;
};

/// Bounds for what comes from clients: text, and the memory and processor time that compiling it may take.
struct ConstraintLimits {
  size_t text_bytes = size_t{256} << 10;
  int64_t compile_bytes = int64_t{512} << 20;
  double compile_cpu_s = 2;
  int64_t cache_bytes = int64_t{128} << 20;
};

/// Compiles and keeps constraints, least recently used ones go first. Any thread.
class ConstraintCompiler {
 public:
  using Compiled = Result<std::shared_ptr<const Constraint>>;

  /// `vocab_size`: of the logits. `end_tokens` end an answer; an empty list means that nothing can be constrained.
  ConstraintCompiler(std::shared_ptr<const Tokenizer> tokenizer, int32_t vocab_size, std::vector<int32_t> end_tokens,
                     ConstraintLimits limits = {});
  ~ConstraintCompiler();
  ConstraintCompiler(const ConstraintCompiler&) = delete;
  ConstraintCompiler& operator=(const ConstraintCompiler&) = delete;

  /// What compile() answered before, failures too; takes microseconds.
  std::optional<Compiled> cached(const ConstraintSpec& spec);
  /// Takes milliseconds, the first time longer: the vocabulary is sorted then. The error names what is wrong in `spec`.
  Compiled compile(const ConstraintSpec& spec);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace quern
