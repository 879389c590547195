// Flags: the command line of one command. Thread: main.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quern {

/// What a number may be; NaN never is.
struct Bounds {
  double least = 0.0;
  double most = 0.0;
  bool open = false;  // `least` itself is too little
};
constexpr Bounds between(double least, double most) { return {least, most}; }
/// Infinity too.
constexpr Bounds above(double least) { return {least, std::numeric_limits<double>::infinity(), true}; }

/// `--name VALUE` and `--name=VALUE`; `--a_b` is `--a-b`; a boolean takes no value, and `--no-name` turns it off.
/// Integers take the suffixes k, m, g (powers of 1000) and Ki, Mi, Gi (powers of 1024).
class Flags {
 public:
  Flags(std::string usage, std::string example) : usage_(std::move(usage)), example_(std::move(example)) {}

  /// Without `help` it is known, but not shown.
  void add(std::string_view name, std::string_view value, std::string_view help, std::string* target);
  void add(std::string_view name, std::string_view value, std::string_view help, std::vector<std::string>* target);
  void add(std::string_view name, std::string_view value, std::string_view help, int* target, Bounds bounds);
  void add(std::string_view name, std::string_view value, std::string_view help, int64_t* target, Bounds bounds);
  void add(std::string_view name, std::string_view value, std::string_view help, double* target, Bounds bounds);
  /// A whole number or `word`, as text; -1 says the word too, where it could not be a number.
  void add(std::string_view name, std::string_view value, std::string_view help, std::string* target, Bounds bounds,
           std::string_view word);
  /// "A,B,...", which may be empty; a later list takes the place of an earlier one.
  void add(std::string_view name, std::string_view value, std::string_view help, std::vector<int>* target,
           Bounds bounds);
  void add(std::string_view name, std::string_view help, bool* target);
  /// Another spelling of a flag; not in the help.
  void alias(std::string_view other, std::string_view name);
  /// A list whose values may follow one another, once an argument without a name was there.
  void take_more(std::string_view name);
  /// Arguments without a name, in order; the last one takes all that follow when it is a list.
  void positional(std::string_view name, std::string* target);
  void positional(std::string_view name, std::vector<std::string>* target);

  /// `--help` sets help_wanted() and ends parsing. An unknown flag names the nearest known one. What is said in a later
  /// call takes the place of what an earlier one said, lists too.
  Status parse(std::span<char* const> arguments);
  bool help_wanted() const { return help_wanted_; }
  bool knows(std::string_view name) const { return find(name) != nullptr; }
  /// Whether the flag takes no value.
  bool is_switch(std::string_view name) const { return knows(name) && find(name)->is_switch; }
  std::string help() const;

 private:
  using Set = std::function<Status(std::string_view text)>;
  struct Flag {
    std::string name, value, help;
    Set set;
    bool is_switch = false;
    std::vector<std::string>* list = nullptr;
    bool takes_more = false;
  };
  struct Positional {
    std::string name;
    Set set;
    std::vector<std::string>* list = nullptr;
  };

  void insert(std::string_view name, std::string_view value, std::string_view help, Set set, bool is_switch);
  const Flag* find(std::string_view name) const;
  Error unknown(std::string_view name) const;
  Result<int> parse_flag(std::span<char* const> arguments, int at, bool named_before);

  std::string usage_;
  std::string example_;
  std::vector<Flag> flags_;
  std::vector<std::pair<std::string, std::string>> aliases_;
  std::vector<Positional> positionals_;
  std::set<std::string> seen_;  // lists that this call of parse() has begun
  bool help_wanted_ = false;
};

/// The one of `names` that differs least from `name`, if it is close.
std::string_view nearest(std::string_view name, std::span<const std::string_view> names);

/// "16", "4k", "2Gi": a whole number with an optional suffix.
Result<int64_t> parse_integer(std::string_view text);
/// A number as JSON spells it, or "inf".
Result<double> parse_number(std::string_view text);

}  // namespace quern
