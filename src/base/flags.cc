#include "base/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <utility>

namespace quern {
namespace {

/// Least number of inserted, deleted and changed letters.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

bool holds(const Bounds& bounds, double value) {
  return (bounds.open ? value > bounds.least : value >= bounds.least) && value <= bounds.most;
}

/// Ends the sentence that refuses a value.
std::string describe(const Bounds& bounds, const char* kind) {
  const char* from = bounds.open ? "above" : "from";
  if (std::isinf(bounds.most)) return fmt::format("say {} {} {}, or inf", kind, from, bounds.least);
  return fmt::format("say {} {} {}{} {}", kind, from, bounds.least, bounds.open ? " and up to" : " to", bounds.most);
}

Error refusal(std::string_view text, const Bounds& bounds, const char* kind) {
  return Error{fmt::format("{}: {}", text.empty() ? "an empty value" : text, describe(bounds, kind))};
}

template <typename T>
Status set_integer(std::string_view text, const Bounds& bounds, T* target) {
  const auto value = parse_integer(text);
  if (!value.ok() || !holds(bounds, static_cast<double>(*value))) return refusal(text, bounds, "a whole number");
  *target = static_cast<T>(*value);
  return {};
}

Status set_integers(std::string_view list, const Bounds& bounds, std::vector<int>* target) {
  target->clear();
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    int value = 0;
    if (!set_integer(list.substr(begin, end - begin), bounds, &value).ok())
      return refusal(list, bounds, "whole numbers with commas between them, each");
    target->push_back(value);
    begin = end + 1;
  }
  return {};
}

}  // namespace

Result<int64_t> parse_integer(std::string_view text) {
  static constexpr std::pair<std::string_view, int64_t> suffixes[] = {
      {"", 1}, {"k", 1000}, {"m", 1'000'000}, {"g", 1'000'000'000}, {"ki", 1 << 10}, {"mi", 1 << 20}, {"gi", 1 << 30}};
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string suffix(end, text.data() + text.size());
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](unsigned char c) { return static_cast<char>(c | 0x20); });
  for (const auto& [name, factor] : suffixes) {
    if (error != std::errc() || suffix != name) continue;
    int64_t product = 0;
    if (__builtin_mul_overflow(value, factor, &product)) return Error{fmt::format("{} is out of range", text)};
    return product;
  }
  return Error{fmt::format("'{}' is not a whole number", text)};
}

Result<double> parse_number(std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return Error{fmt::format("'{}' is not a number", text)};
}

std::string_view nearest(std::string_view name, std::span<const std::string_view> names) {
  std::string_view best;
  size_t least = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string_view candidate : names) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

void Flags::insert(std::string_view name, std::string_view value, std::string_view help, Set set, bool is_switch) {
  flags_.push_back({std::string(name), std::string(value), std::string(help), std::move(set), is_switch});
}

void Flags::add(std::string_view name, std::string_view value, std::string_view help, std::string* target) {
  insert(name, value, help, [target](std::string_view text) { return *target = text, Status(); }, false);
}
void Flags::add(std::string_view name, std::string_view value, std::string_view help,
                std::vector<std::string>* target) {
  insert(name, value, help, [target](std::string_view text) { return target->emplace_back(text), Status(); }, false);
  flags_.back().list = target;
}
void Flags::add(std::string_view name, std::string_view value, std::string_view help, int* target, Bounds bounds) {
  insert(name, value, help, [=](std::string_view text) { return set_integer(text, bounds, target); }, false);
}
void Flags::add(std::string_view name, std::string_view value, std::string_view help, int64_t* target, Bounds bounds) {
  insert(name, value, help, [=](std::string_view text) { return set_integer(text, bounds, target); }, false);
}
void Flags::add(std::string_view name, std::string_view value, std::string_view help, double* target, Bounds bounds) {
  const auto set = [=](std::string_view text) -> Status {
    const auto number = parse_number(text);
    if (!number.ok() || !holds(bounds, *number)) return refusal(text, bounds, "a number");
    *target = *number;
    return {};
  };
  insert(name, value, help, set, false);
}
void Flags::add(std::string_view name, std::string_view value, std::string_view help, std::string* target,
                Bounds bounds, std::string_view word) {
  const auto set = [=, word = std::string(word)](std::string_view text) -> Status {
    int64_t number = 0;
    const bool said = text == word || (text == "-1" && bounds.least > 0);
    const Status read = said ? Status() : set_integer(text, bounds, &number);
    if (!read.ok()) return Error{fmt::format("{}, or {}", read.error().message, word)};
    *target = said ? word : text;
    return {};
  };
  insert(name, value, help, set, false);
}
void Flags::add(std::string_view name, std::string_view value, std::string_view help, std::vector<int>* target,
                Bounds bounds) {
  insert(name, value, help, [=](std::string_view text) { return set_integers(text, bounds, target); }, false);
}
void Flags::add(std::string_view name, std::string_view help, bool* target) {
  insert(name, "", help, [target](std::string_view text) { return *target = text != "no", Status(); }, true);
}

void Flags::alias(std::string_view other, std::string_view name) { aliases_.emplace_back(other, name); }

void Flags::positional(std::string_view name, std::string* target) {
  positionals_.push_back({std::string(name), [target](std::string_view text) { return *target = text, Status(); }});
}
void Flags::positional(std::string_view name, std::vector<std::string>* target) {
  positionals_.push_back(
      {std::string(name), [target](std::string_view text) { return target->emplace_back(text), Status(); }, target});
}

void Flags::take_more(std::string_view name) {
  for (Flag& flag : flags_) flag.takes_more |= flag.name == name;
}

Status Flags::parse(std::span<char* const> arguments) {
  size_t next = 0;
  bool only_positionals = false;
  bool first = true;  // of a list of positionals
  seen_.clear();
  for (int i = 0; i < static_cast<int>(arguments.size()); ++i) {
    const std::string_view text = arguments[static_cast<size_t>(i)];
    if (!only_positionals && text == "--") {
      only_positionals = true;
    } else if (!only_positionals && (text == "--help" || text == "-h")) {
      help_wanted_ = true;
      return {};
    } else if (!only_positionals && text.size() > 1 && text[0] == '-') {
      ASSIGN_OR_RETURN(const int used, parse_flag(arguments, i, next > 0 || !first));
      i += used;
    } else {
      if (next >= positionals_.size()) return Error{fmt::format("unexpected argument '{}'", text)};
      const Positional& positional = positionals_[next];
      if (positional.list != nullptr && std::exchange(first, false)) positional.list->clear();
      TRY(positional.set(text));
      if (positional.list == nullptr) ++next;
    }
  }
  return {};
}

/// How many arguments after the flag's own belong to it.
Result<int> Flags::parse_flag(std::span<char* const> arguments, int at, bool named_before) {
  std::string name(arguments[static_cast<size_t>(at)]);
  const size_t equals = name.find('=');
  const bool has_value = equals != std::string::npos;
  const std::string value = has_value ? name.substr(equals + 1) : "";
  if (has_value) name.resize(equals);
  std::replace(name.begin(), name.end(), '_', '-');
  bool off = false;
  const Flag* flag = find(name);
  if (flag == nullptr && name.starts_with("--no-")) {
    flag = find("--" + name.substr(5));
    off = flag != nullptr && flag->is_switch;
    if (!off) flag = nullptr;
  }
  if (flag == nullptr) return unknown(name);
  if (flag->is_switch) {
    if (has_value) return Error{fmt::format("{} takes no value", name)};
    TRY(flag->set(off ? "no" : ""));
    return 0;
  }
  if (!has_value && at + 1 >= static_cast<int>(arguments.size())) {
    return Error{fmt::format("{} needs a value: {} {}", name, name, flag->value)};
  }
  if (flag->list != nullptr && seen_.insert(flag->name).second) flag->list->clear();
  const Status set = flag->set(has_value ? std::string_view(value) : arguments[static_cast<size_t>(at) + 1]);
  if (!set.ok()) return Error{fmt::format("{} {}", name, set.error().message)};
  if (has_value) return 0;
  int used = 1;
  while (flag->takes_more && named_before && at + used + 1 < static_cast<int>(arguments.size())) {
    const std::string_view more = arguments[static_cast<size_t>(at + used + 1)];
    if (more.starts_with('-')) break;
    TRY(flag->set(more));
    ++used;
  }
  return used;
}

const Flags::Flag* Flags::find(std::string_view name) const {
  for (const auto& [other, real] : aliases_) {
    if (name == other) name = real;
  }
  const auto it = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) { return flag.name == name; });
  return it == flags_.end() ? nullptr : &*it;
}

Error Flags::unknown(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const std::string_view close = nearest(name, names);
  if (close.empty()) return Error{fmt::format("unknown flag {}; see --help", name)};
  return Error{fmt::format("unknown flag {}; did you mean {}?", name, close)};
}

std::string Flags::help() const {
  std::string text = fmt::format("usage: {}\n\n", usage_);
  for (const Flag& flag : flags_) {
    if (flag.help.empty()) continue;
    const std::string left = flag.value.empty() ? flag.name : flag.name + " " + flag.value;
    text += left.size() < 34 ? fmt::format("  {:34}{}\n", left, flag.help)
                             : fmt::format("  {}\n  {:34}{}\n", left, "", flag.help);
  }
  text += fmt::format("\nexample:\n  {}\n", example_);
  return text;
}

}  // namespace quern
