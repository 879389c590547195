// Regex: a pattern of a tokenizer.json, which Oniguruma would run, on PCRE2's JIT. Bounded in time. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct pcre2_real_code_8;

namespace quern {

/// A part of a text, in bytes.
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const Span&) const = default;
};

inline std::string_view part(std::string_view text, Span span) {
  return text.substr(span.begin, span.end - span.begin);
}

class Regex {
 public:
  /// Takes Oniguruma's (Ruby) syntax as far as PCRE2 can say the same; else an error that names the construct.
  static Result<Regex> compile(std::string_view pattern);

  /// Appends every match in `text`, which is valid UTF-8 below 4 GiB. A pattern that needs too long is an error.
  Status find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  explicit Regex(pcre2_real_code_8* code) : code_(code) {}
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

/// `pattern` in PCRE2's syntax.
Result<std::string> to_pcre2(std::string_view pattern);

}  // namespace quern
