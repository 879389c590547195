#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <list>
#include <mutex>
#include <new>
#include <sstream>
#include <stdexcept>
#include <unordered_map>

#include "base/guarded.h"
#include "text/constraint.h"
#include "text/constraint/budget.h"
#include "text/constraint/matcher.h"
#include "text/constraint/xgrammar_text.h"

namespace quern {
namespace {

constexpr size_t kLongestMessage = 300;
constexpr size_t kMostFailedBytes = size_t{4} << 20;

// What XGrammar says while this thread compiles: a warning tells that something would be left out.
thread_local std::string* warnings = nullptr;

/// One line.
std::string plain(std::string_view text) {
  text = text.substr(0, text.find('\n')).substr(0, kLongestMessage);
  while (!text.empty() && (text.back() == ' ' || text.back() == '.' || text.back() == '\n')) text.remove_suffix(1);
  return text.empty() ? "it is not valid" : std::string(text);
}

std::string key_of(const ConstraintSpec& spec) {
  std::string key = fmt::format("{}{}{} {} ", static_cast<int>(spec.kind), spec.strict, spec.compact, spec.text);
  for (const std::string& choice : spec.choices) key += fmt::format("{}:{}", choice.size(), choice);
  return key;
}

void set_bit(std::vector<uint32_t>& words, int32_t id) { words[static_cast<size_t>(id) / 32] |= 1U << (id % 32); }
void clear_bit(std::vector<uint32_t>& words, int32_t id) { words[static_cast<size_t>(id) / 32] &= ~(1U << (id % 32)); }

/// The tokenizer as XGrammar wants it, and what it does not know about tokens.
struct Vocabulary {
  std::optional<xgrammar::TokenizerInfo> tokens;
  std::optional<xgrammar::GrammarCompiler> compiler;
  std::vector<uint32_t> control;         // tokens that no text stands for
  std::vector<uint32_t> control_or_raw;  // and those with characters that JSON writes as escapes
  std::shared_ptr<const TokenSets> sets;
};

bool has_raw_control(std::string_view bytes) {
  for (const char c : bytes) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') return true;
  }
  return false;
}

bool is_surrogate_tail(char c) { return static_cast<unsigned char>(c) >= 0xA0 && static_cast<unsigned char>(c) < 0xC0; }

bool has_surrogate(std::string_view bytes) {
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    if (bytes[i] == '\xED' && is_surrogate_tail(bytes[i + 1])) return true;
  }
  return false;
}

/// A control token spells something that is no UTF-8, so that no grammar reaches it but by its id.
std::unique_ptr<Vocabulary> make_vocabulary(const Tokenizer& tokenizer, int32_t size,
                                            const std::vector<int32_t>& end_tokens, int64_t cache_bytes) {
  auto made = std::make_unique<Vocabulary>();
  const size_t words = (static_cast<size_t>(size) + 31) / 32;
  made->control.assign(words, 0);
  made->control_or_raw.assign(words, 0);
  auto sets = std::make_shared<TokenSets>();
  sets->spaced.assign(tokenizer.strips_leading_space() ? words : 0, 0);
  sets->surrogate_lead.assign(words, 0);
  sets->surrogate_tail.assign(words, 0);
  std::vector<std::string> texts(static_cast<size_t>(size));
  for (int32_t id = 0; id < size; ++id) {
    const std::string_view bytes = id < tokenizer.size() ? tokenizer.token_bytes(id) : std::string_view();
    const bool control = id >= tokenizer.size() || tokenizer.is_special(id) || bytes.empty() || has_surrogate(bytes);
    if (control) set_bit(made->control, id);
    if (control || has_raw_control(bytes)) set_bit(made->control_or_raw, id);
    if (!sets->spaced.empty() && bytes.starts_with(' ')) set_bit(sets->spaced, id);
    if (bytes.ends_with('\xED')) set_bit(sets->surrogate_lead, id);
    if (!bytes.empty() && is_surrogate_tail(bytes[0])) set_bit(sets->surrogate_tail, id);
    if (id < tokenizer.size())
      texts[static_cast<size_t>(id)] = control ? "\xFF" + std::string(tokenizer.token_text(id)) : std::string(bytes);
  }
  for (const int32_t id : end_tokens) {
    clear_bit(made->control, id);
    clear_bit(made->control_or_raw, id);
  }
  made->sets = std::move(sets);
  made->tokens.emplace(texts, xgrammar::VocabType::RAW, size, end_tokens);
  made->compiler.emplace(*made->tokens, 1, true, cache_bytes);
  return made;
}

/// In a JSON string XGrammar makes an automaton of a pattern; of one that it cannot read well it makes something wider.
Status check_pattern(const std::string& pattern) {
  const Json schema(Json::Object{{"type", "string"}, {"pattern", pattern}});
  std::string why = "it needs characters that JSON writes as escapes";
  try {
    const std::string grammar = xgrammar::Grammar::FromJSONSchema(schema.dump()).ToString();
    if (grammar.find("Regex(") != std::string::npos && warnings->empty()) return {};
    if (!warnings->empty()) why = plain(*warnings);
  } catch (const std::runtime_error& error) {
    why = plain(error.what());
  }
  return Error{fmt::format("the pattern '{}' is not supported: {}", pattern.substr(0, 100), why)};
}

}  // namespace

class ConstraintCompiler::State {
 public:
  State(std::shared_ptr<const Tokenizer> tokenizer, int32_t vocab_size, std::vector<int32_t> end_tokens,
        ConstraintLimits limits)
      : tokenizer_(std::move(tokenizer)), vocab_size_(vocab_size), end_tokens_(std::move(end_tokens)), limits_(limits) {
    std::erase_if(end_tokens_, [&](int32_t id) { return id < 0 || id >= vocab_size_; });
  }

  std::optional<Compiled> cached(const std::string& key) {
    return cache_.with([&](Cache& cache) { return cache.find(key); });
  }

  Compiled compile(const ConstraintSpec& spec) {
    std::string key = key_of(spec);
    if (key.size() > limits_.text_bytes) {
      return Error{fmt::format("it has more than {} bytes", limits_.text_bytes)};
    }
    if (end_tokens_.empty() || !tokenizer_->decodes_by_token()) {
      return Error{"this model's vocabulary cannot be constrained"};
    }
    if (auto found = cached(key)) return *found;
    std::call_once(prepared_,
                   [&] { vocabulary_ = make_vocabulary(*tokenizer_, vocab_size_, end_tokens_, limits_.cache_bytes); });
    Compiled made = bounded(spec);
    if (!made.ok()) forget_failures(key.size());
    cache_.with([&](Cache& cache) { cache.insert(std::move(key), made, limits_.cache_bytes); });
    return made;
  }

 private:
  /// Least recently used ones go first.
  class Cache {
   public:
    std::optional<Compiled> find(const std::string& key) {
      const auto place = places_.find(key);
      if (place == places_.end()) return std::nullopt;
      entries_.splice(entries_.begin(), entries_, place->second);
      return entries_.front().compiled;
    }

    void insert(std::string key, const Compiled& compiled, int64_t most_bytes) {
      if (places_.contains(key)) return;
      const int64_t bytes =
          static_cast<int64_t>(2 * key.size() + 512) + (compiled.ok() ? compiled.value()->bytes() : 0);
      entries_.push_front({key, compiled, bytes});
      places_.emplace(std::move(key), entries_.begin());
      bytes_ += bytes;
      while (bytes_ > most_bytes && entries_.size() > 1) {
        bytes_ -= entries_.back().bytes;
        places_.erase(entries_.back().key);
        entries_.pop_back();
      }
    }

   private:
    struct Entry {
      std::string key;
      Compiled compiled;
      int64_t bytes;
    };
    std::list<Entry> entries_;
    std::unordered_map<std::string, std::list<Entry>::iterator> places_;
    int64_t bytes_ = 0;
  };

  Compiled bounded(const ConstraintSpec& spec) {
    std::string said;
    said.reserve(2 * kLongestMessage);
    std::string failure;
    failure.reserve(2 * kLongestMessage);
    auto spent = AllocationBudget::Spent::nothing;
    std::shared_ptr<const Constraint> made;
    {
      const AllocationBudget budget(limits_.compile_bytes, limits_.compile_cpu_s);
      warnings = &said;
      try {
        auto result = build(spec);
        if (result.ok())
          made = std::move(result).value();
        else
          failure = result.error().message;
      } catch (const std::exception& error) {
        failure = plain(error.what());
      }
      warnings = nullptr;
      spent = budget.spent();
    }
    if (spent == AllocationBudget::Spent::time) {
      return Error{fmt::format("it takes more than {} s to compile; make it smaller", limits_.compile_cpu_s)};
    }
    if (spent == AllocationBudget::Spent::bytes) {
      return Error{fmt::format("it takes more than {} MB to compile; make it smaller", limits_.compile_bytes >> 20)};
    }
    if (!failure.empty()) return Error{std::move(failure)};
    if (!said.empty()) return Error{plain(said)};
    std::vector<uint32_t> words;
    if (!made->start()->fill(words)) return Error{"it is too ambiguous: the first token alone takes too long"};
    if (std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; })) {
      return Error{"there is nothing that it allows"};
    }
    return made;
  }

  Compiled build(const ConstraintSpec& spec) {
    ASSIGN_OR_RETURN(const XgrammarText text, xgrammar_text(spec, *tokenizer_));
    for (const std::string& pattern : text.patterns) TRY(check_pattern(pattern));
    std::vector<uint32_t> blocked = text.no_raw_control ? vocabulary_->control_or_raw : vocabulary_->control;
    for (const int32_t id : text.tokens) clear_bit(blocked, id);
    return std::shared_ptr<const Constraint>(std::make_shared<CompiledConstraint>(
        grammar_of(text, spec.compact), end_tokens_, std::move(blocked), vocabulary_->sets));
  }

  xgrammar::CompiledGrammar grammar_of(const XgrammarText& text, bool compact) {
    xgrammar::GrammarCompiler& compiler = *vocabulary_->compiler;
    using Kind = XgrammarText::Kind;
    switch (text.kind) {
      case Kind::regex: return compiler.CompileRegex(text.text);
      case Kind::ebnf: return compiler.CompileGrammar(text.text, "root");
      case Kind::lark: return compiler.CompileLark(text.text);
      case Kind::structural_tag: return compiler.CompileStructuralTag(text.text);
      case Kind::schema: break;
    }
    const auto whitespace = compact ? std::nullopt : std::optional<int>(most_whitespace);
    return compiler.CompileJSONSchema(text.text, !compact, std::nullopt, std::nullopt, true, whitespace);
  }

  /// XGrammar's own cache keeps what failed without counting it.
  void forget_failures(size_t bytes) {
    const bool full = failed_bytes_.with([&](size_t& sum) {
      sum += bytes;
      return sum > kMostFailedBytes ? (sum = 0, true) : false;
    });
    if (full) vocabulary_->compiler->ClearCache();
  }

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const int32_t vocab_size_;
  std::vector<int32_t> end_tokens_;
  const ConstraintLimits limits_;
  std::once_flag prepared_;
  std::unique_ptr<Vocabulary> vocabulary_;
  Guarded<Cache> cache_;
  Guarded<size_t> failed_bytes_;

  friend class ConstraintCompiler;
};

ConstraintCompiler::ConstraintCompiler(std::shared_ptr<const Tokenizer> tokenizer, int32_t vocab_size,
                                       std::vector<int32_t> end_tokens, ConstraintLimits limits)
    : state_(std::make_unique<State>(std::move(tokenizer), vocab_size, std::move(end_tokens), limits)) {}

ConstraintCompiler::~ConstraintCompiler() = default;

std::optional<ConstraintCompiler::Compiled> ConstraintCompiler::cached(const ConstraintSpec& spec) {
  return state_->cached(key_of(spec));
}

ConstraintCompiler::Compiled ConstraintCompiler::compile(const ConstraintSpec& spec) { return state_->compile(spec); }

}  // namespace quern

// What a warning of XGrammar calls (xgrammar_logging.h).
namespace xgrammar {

void note_warning(std::ostringstream& text) noexcept;

void note_warning(std::ostringstream& text) noexcept {
  if (quern::warnings == nullptr || !quern::warnings->empty()) return;
  try {
    *quern::warnings = text.str();
  } catch (const std::bad_alloc&) {
    quern::warnings->push_back('?');  // it has room
  }
}

}  // namespace xgrammar
