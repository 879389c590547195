#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern/regex.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fmt/format.h>
#include <iterator>
#include <pcre2.h>

#include "text/pattern/unicode.h"

namespace quern {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t max_pattern_bytes = 64 << 10;
constexpr uint32_t match_limit = 10'000'000;
constexpr uint32_t depth_limit = 20'000;       // of the interpreter, where there is no JIT
constexpr uint32_t heap_limit_kib = 64 << 10;  // likewise
constexpr size_t jit_stack_bytes = 4 << 20;
// Start positions tried per call, so that the clock is looked at in between: the match limit is one of each start.
constexpr size_t window = 16;

// Oniguruma's \s and \w as items of a character class; PCRE2's own differ (U+180E; marks, connectors, fractions).
constexpr std::string_view space_items =
    R"(\t-\r\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view not_space_items =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
constexpr std::string_view word_items_in_class = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside classes, \w also takes the numbers of Latin-1 that are no digits.
constexpr std::string_view word_items = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
constexpr std::string_view hex_items = "0-9A-Fa-f";

/// What [:name:] stands for, where PCRE2 takes other characters.
struct PosixClass {
  std::string_view name;
  std::string_view items;
};
constexpr PosixClass posix_classes[] = {
    {"alpha", R"(\p{Alphabetic})"},
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"lower", R"(\p{Lowercase})"},
    {"upper", R"(\p{Uppercase})"},
    {"punct", R"(\p{P}\p{S})"},
    {"blank", R"(\t\p{Zs})"},
    {"graph", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})"},
    {"print", R"(\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}\p{Zs})"},
    {"space", space_items},
    {"^space", not_space_items},
    {"word", word_items_in_class},
};

/// Rewrites one pattern; a small reader of the syntax, since only escapes, classes and flags differ.
class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        TRY(escape());
      } else if (in_class_) {
        TRY(class_character(c));
      } else {
        TRY(plain_character(c));
      }
    }
    return std::move(out_);
  }

 private:
  Error unsupported(std::string_view what) const {
    return Error{fmt::format("regular expression \"{}\": {} is not supported", pattern_, what)};
  }
  bool follows(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }
  void put_items(std::string_view items, bool negated) {
    out_ += in_class_ ? std::string(items) : fmt::format("[{}{}]", negated ? "^" : "", items);
  }

  Status escape() {
    if (at_ + 1 == pattern_.size()) return unsupported("a backslash at the end");
    const char c = pattern_[at_ + 1];
    if (c == 'K' || c == 'G' || c == 'C') return unsupported(fmt::format("\\{}", c));
    if (in_class_ && (c == 'W' || c == 'H')) return unsupported(fmt::format("\\{} in a class", c));
    if (c == 'u') return unicode_escape();
    if (c == 'b' && !in_class_) {
      out_ += fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", word_items);
    } else if (c == 'B' && !in_class_) {
      out_ += fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", word_items);
    } else if (c == 's') {
      put_items(space_items, false);
    } else if (c == 'S') {
      put_items(in_class_ ? not_space_items : space_items, true);
    } else if (c == 'w' || c == 'W') {
      put_items(in_class_ ? word_items_in_class : word_items, c == 'W');
    } else if ((c == 'p' || c == 'P') && names_script()) {
      out_ += fmt::format("\\{}{{sc:", c);  // without "sc:" PCRE2 adds characters that several scripts use
      ++at_;
    } else if (c == 'v') {
      out_ += "\\x0B";  // PCRE2's takes every end of a line
    } else if (c == 'h' || c == 'H') {
      put_items(hex_items, c == 'H');
    } else {
      copy(2);
      return {};
    }
    at_ += 2;
    return {};
  }

  /// At \p: whether a script follows. Names of categories are shorter.
  bool names_script() const {
    const std::string_view rest = pattern_.substr(at_ + 2);
    const size_t close = rest.find('}');
    return rest.starts_with('{') && close != std::string_view::npos && close > 3 && rest[1] >= 'A' && rest[1] <= 'Z' &&
           rest.substr(1, close - 1) != "Any" && rest.substr(0, close).find(':') == std::string_view::npos;
  }

  Status unicode_escape() {
    const std::string_view digits = pattern_.substr(std::min(at_ + 2, pattern_.size())).substr(0, 4);
    const bool hex = std::ranges::all_of(digits, [](unsigned char c) { return std::isxdigit(c) != 0; });
    if (digits.size() != 4 || !hex) return unsupported("\\u without four digits");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
    return {};
  }

  Status class_character(char c) {
    if (follows("&&")) return unsupported("an intersection of classes (&&)");
    if (follows("[:")) {
      const size_t close = pattern_.find(":]", at_);
      if (close != std::string_view::npos) return posix_class(pattern_.substr(at_ + 2, close - at_ - 2));
    }
    if (c == '[') return unsupported("a class inside a class");
    if (c == ']') in_class_ = false;
    copy(1);
    return {};
  }

  Status posix_class(std::string_view name) {
    const auto* const found = std::ranges::find(posix_classes, name, &PosixClass::name);
    if (found != std::end(posix_classes)) {
      out_ += found->items;
      at_ += name.size() + 4;
      return {};
    }
    const bool negated = name.starts_with('^');
    if (negated && std::ranges::find(posix_classes, name.substr(1), &PosixClass::name) != std::end(posix_classes))
      return unsupported(fmt::format("[:{}:]", name));
    copy(name.size() + 4);
    return {};
  }

  /// [left&&[right]], the one form of intersection that patterns use: a character of `right` that is one of `left`.
  Result<bool> intersection() {
    const size_t both = pattern_.find("&&[", at_);
    const size_t end = pattern_.find(']', at_);
    if (both == std::string_view::npos || end < both || pattern_[both - 1] == '[') return false;
    const size_t close = pattern_.find("]]", both);
    if (close == std::string_view::npos || pattern_.find(']', both) != close)
      return unsupported("such an intersection (&&)");
    ASSIGN_OR_RETURN(const std::string left, Rewriter(fmt::format("{}]", pattern_.substr(at_, both - at_))).run());
    ASSIGN_OR_RETURN(const std::string right, Rewriter(pattern_.substr(both + 2, close + 1 - both - 2)).run());
    out_ += fmt::format("(?:(?={}){})", right, left);
    at_ = close + 2;
    return true;
  }

  Status plain_character(char c) {
    if (c == '[') {
      ASSIGN_OR_RETURN(const bool intersected, intersection());
      if (intersected) return {};
      in_class_ = true;
      copy(follows("[^") ? 2 : 1);
      if (follows("]")) copy(1);
      return {};
    }
    if (c == '}' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] == '+' && closes_interval()) {
      return unsupported("{n,m}+");
    }
    if (follows("(*")) return unsupported("(*");
    if (follows("(?")) {
      flags();
    } else {
      copy(1);
    }
    return {};
  }

  bool closes_interval() const {
    const size_t open = pattern_.rfind('{', at_);
    const bool code_point = open != std::string_view::npos && pattern_.substr(0, open).ends_with("\\x");
    return open != std::string_view::npos && !code_point &&
           std::ranges::all_of(pattern_.substr(open + 1, at_ - open - 1),
                               [](unsigned char c) { return std::isdigit(c) != 0 || c == ','; });
  }

  /// Ruby's (?m) lets the dot match line feeds, which PCRE2 calls (?s).
  void flags() {
    copy(2);
    while (at_ < pattern_.size() && std::string_view("imx-").find(pattern_[at_]) != std::string_view::npos) {
      out_ += pattern_[at_] == 'm' ? 's' : pattern_[at_];
      ++at_;
    }
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

/// What a thread needs to match; PCRE2 wants its own per thread.
struct Workspace {
  Workspace()
      : match(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 << 10, jit_stack_bytes, nullptr)) {
    CHECK(match != nullptr && context != nullptr);
    pcre2_set_match_limit(context, match_limit);
    pcre2_set_depth_limit(context, depth_limit);
    pcre2_set_heap_limit(context, heap_limit_kib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Workspace() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  pcre2_match_data* match;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

std::string error_text(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// The time that a search may take: by the clock, and then by the processor, whose time a busy machine gives others.
class Allowance {
 public:
  explicit Allowance(size_t text_bytes)
      : deadline_(Clock::now() + std::chrono::milliseconds(2000 + text_bytes / 10'000)) {}
  bool used_up() {
    if (Clock::now() <= deadline_) return false;
    constexpr double more_seconds = 1.0;
    if (limit_ == 0.0) limit_ = thread_seconds() + more_seconds;
    return thread_seconds() > limit_;
  }

 private:
  Clock::time_point deadline_;
  double limit_ = 0.0;
};

size_t next_character(std::string_view text, size_t at) {
  return at < text.size() ? at + decode_utf8(text.data() + at).length : at + 1;
}

}  // namespace

Result<std::string> to_pcre2(std::string_view pattern) {
  if (pattern.size() > max_pattern_bytes) {
    return Error{
        fmt::format("regular expression of {} bytes; at most {} are allowed", pattern.size(), max_pattern_bytes)};
  }
  if (!is_utf8(pattern)) return Error{"regular expression is no UTF-8"};
  return Rewriter(pattern).run();
}

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Result<Regex> Regex::compile(std::string_view pattern) {
  ASSIGN_OR_RETURN(const std::string text, to_pcre2(pattern));
  int code = 0;
  PCRE2_SIZE offset = 0;
  // Ruby's ^ and $ are those of lines.
  const uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C;
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options, &code, &offset, context.get());
  if (compiled == nullptr) return Error{fmt::format("regular expression \"{}\": {}", pattern, error_text(code))};
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);  // without it the interpreter runs, with the same limits
  return Regex(compiled);
}

Status Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  thread_local Workspace workspace;
  Allowance allowance(text.size());
  size_t last_end = SIZE_MAX;
  for (size_t at = 0; at <= text.size();) {
    const size_t limit = at + window;
    pcre2_set_offset_limit(workspace.context, limit);
    const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK, workspace.match, workspace.context);
    if (allowance.used_up()) return Error{"a regular expression of the tokenizer takes too long on this text"};
    if (found == PCRE2_ERROR_NOMATCH) {
      at = limit + 1;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
      continue;
    }
    if (found < 0) return Error{fmt::format("a regular expression of the tokenizer failed: {}", error_text(found))};
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(workspace.match);
    const bool repeated = ends[0] == ends[1] && ends[0] == last_end;  // an empty match right after another one
    if (!repeated) {
      matches.push_back({static_cast<uint32_t>(ends[0]), static_cast<uint32_t>(ends[1])});
      last_end = ends[1];
    }
    at = ends[0] == ends[1] ? next_character(text, ends[1]) : ends[1];
  }
  return {};
}

}  // namespace quern
