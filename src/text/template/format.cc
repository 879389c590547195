#include "text/template/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "text/template/print.h"

namespace quern {

namespace {

constexpr int64_t kMaxWidth = 1'000'000;
constexpr int kMaxPrecision = 1000;

/// [[fill]align][sign][#][0][width][,][.precision][type], the part of a field after ':'.
struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  char grouping = '\0';
  int64_t width = 0;
  int precision = -1;
  char type = '\0';
  bool trusted = true;  // whether the fill is
};

int64_t take_number(std::string_view& text, int64_t limit) {
  int64_t number = 0;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    number = std::min(limit + 1, number * 10 + (text[0] - '0'));
    text.remove_prefix(1);
  }
  return number;
}

bool take(std::string_view& text, std::string_view any, char& found) {
  if (text.empty() || any.find(text[0]) == std::string_view::npos) return false;
  found = text[0];
  text.remove_prefix(1);
  return true;
}

/// False when it is malformed.
bool parse_spec(std::string_view text, Spec& spec) {
  char ignored = '\0';
  if (!text.empty()) {
    const size_t first = character_size(text, 0);
    if (first < text.size() && std::string_view("<>^=").find(text[first]) != std::string_view::npos) {
      spec.fill = text.substr(0, first);
      text.remove_prefix(first);
    }
  }
  take(text, "<>^=", spec.align);
  take(text, "+- ", spec.sign);
  spec.alternate = take(text, "#", ignored);
  if (take(text, "0", ignored)) {
    spec.zero = true;
    if (!spec.align) {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  spec.width = take_number(text, kMaxWidth);
  take(text, ",_", spec.grouping);
  if (take(text, ".", ignored)) {
    if (text.empty() || text[0] < '0' || text[0] > '9') return false;
    spec.precision = static_cast<int>(take_number(text, kMaxPrecision));
  }
  take(text, "sdfFeEgGxXobn%", spec.type);
  return text.empty() && spec.width <= kMaxWidth && spec.precision <= kMaxPrecision;
}

std::string group_digits(const std::string& digits, char separator) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string result;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % 3 == 0) result += separator;
    result += digits[i];
  }
  return result + digits.substr(end);
}

std::string format_integer(uint64_t magnitude, const Spec& spec) {
  switch (spec.type) {
    case 'x': return fmt::format("{}{:x}", spec.alternate ? "0x" : "", magnitude);
    case 'X': return fmt::format("{}{:X}", spec.alternate ? "0X" : "", magnitude);
    case 'o': return fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude);
    case 'b': return fmt::format("{}{:b}", spec.alternate ? "0b" : "", magnitude);
    default: return std::to_string(magnitude);
  }
}

std::string format_double(double magnitude, const Spec& spec) {
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'f':
    case 'F': return fmt::format("{:.{}f}", magnitude, precision);
    case 'e': return fmt::format("{:.{}e}", magnitude, precision);
    case 'E': return fmt::format("{:.{}E}", magnitude, precision);
    case 'G': return fmt::format("{:.{}G}", magnitude, precision == 0 ? 1 : precision);
    case '%': return fmt::format("{:.{}f}%", magnitude * 100, precision);
    case '\0':
      if (spec.precision < 0) return float_text(magnitude);
      break;
    default: break;
  }
  std::string digits = fmt::format("{:.{}g}", magnitude, precision == 0 ? 1 : precision);
  if (spec.type == '\0' && digits.find_first_not_of("0123456789") == std::string::npos) digits += ".0";
  return digits;
}

bool is_trusted(const Text& text) { return text.trusted && text.flips.empty(); }

/// Puts `fill` around the value up to the width. The value keeps its trust.
Text pad(const std::string& sign, const Text& value, const Spec& spec, char default_align) {
  const auto size = static_cast<int64_t>(count_characters(value.bytes) + sign.size());
  const int64_t missing = std::max<int64_t>(0, spec.width - size);
  const char align = spec.align ? spec.align : default_align;
  const int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&](int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += spec.fill;
    return text;
  };
  Text result;
  if (align == '=') result.append(sign, true);
  result.append(fill(before), spec.trusted);
  if (align != '=') result.append(sign, true);
  result.append(value);
  result.append(fill(missing - before), spec.trusted);
  return result;
}

Value format_number(Renderer& renderer, const Value& value, const Spec& spec) {
  const bool negative = value.is_integral() ? value.integer() < 0 : std::signbit(value.number());
  const bool as_integer = value.is_integral() && std::string_view("fFeEgG%").find(spec.type) == std::string_view::npos;
  if (!as_integer && std::string_view("dxXob").find(spec.type) != std::string_view::npos && spec.type) {
    return renderer.fail(fmt::format("unknown format code '{}' for a float", spec.type));
  }
  std::string digits;
  if (as_integer) {
    const auto bits = static_cast<uint64_t>(value.integer());
    digits = format_integer(negative ? 0 - bits : bits, spec);
  } else {
    digits = format_double(std::fabs(value.number()), spec);
  }
  if (spec.grouping) digits = group_digits(digits, spec.grouping);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return renderer.heap().text(pad(sign, Text(digits), spec, '>'));
}

Value format_value(Renderer& renderer, const Value& value, const Text& wanted) {
  const std::string_view text = wanted.bytes;
  if (text.empty()) return renderer.text_of(value);
  Spec spec;
  spec.trusted = is_trusted(wanted);
  if (!parse_spec(text, spec)) return renderer.fail(fmt::format("the format '{}' is not valid", text));
  if (value.is_number()) {
    if (spec.type == 's') return renderer.fail("unknown format code 's' for a number");
    return format_number(renderer, value, spec);
  }
  if (!value.is_text() && !value.is_undefined()) {
    return renderer.fail(fmt::format("a value of type '{}' can not be formatted by '{}'", value.type_name(), text));
  }
  if ((spec.type && spec.type != 's') || spec.align == '=' || spec.sign != '-' || spec.grouping) {
    return renderer.fail(fmt::format("the format '{}' is not for strings", text));
  }
  Text shown = to_text(value, renderer.budget());
  if (spec.precision >= 0) {
    shown = shown.slice(0, character_offset(shown.bytes, static_cast<size_t>(spec.precision)));
  }
  return renderer.heap().text(pad("", shown, spec, '<'));
}

/// One run over the fields of a brace format.
class BraceFormat {
 public:
  BraceFormat(Renderer& renderer, const Text& format, const Arguments& arguments)
      : renderer_(renderer), format_(format), text_(format.bytes), arguments_(arguments) {}

  Value run() {
    while (at_ < text_.size() && renderer_.budget().spend()) {
      const size_t brace = std::min(text_.find_first_of("{}", at_), text_.size());
      out_.append(format_, at_, brace);
      at_ = brace;
      if (at_ == text_.size()) break;
      if (at_ + 1 < text_.size() && text_[at_ + 1] == text_[at_]) {
        out_.append(format_, at_, at_ + 1);
        at_ += 2;
      } else if (text_[at_] == '}') {
        return renderer_.fail("single '}' in a format string");
      } else {
        ++at_;
        append(field(true));
      }
      if (!renderer_.budget().allows_text(static_cast<int64_t>(out_.size()))) return {};
    }
    return renderer_.heap().text(std::move(out_));
  }

 private:
  void append(const Value& value) {
    if (!renderer_.budget().failed()) out_.append(*renderer_.text_of(value));
  }

  /// name[!conversion][:spec]}, from behind the opening brace. A spec may have fields of its own.
  Value field(bool may_nest) {
    const size_t name_end = text_.find_first_of("!:{}", at_);
    if (name_end == std::string_view::npos || text_[name_end] == '{')
      return renderer_.fail("a format field is malformed");
    const std::string_view name = text_.substr(at_, name_end - at_);
    at_ = name_end;
    char conversion = '\0';
    if (text_[at_] == '!') {
      if (at_ + 2 >= text_.size()) return renderer_.fail("a format field is malformed");
      conversion = text_[at_ + 1];
      at_ += 2;
    }
    Value value = look_up(name);
    Text spec;
    if (text_[at_] == ':') {
      ++at_;
      read_spec(spec, may_nest);
    }
    if (at_ >= text_.size() || text_[at_] != '}') return renderer_.fail("a format field is not closed by '}'");
    ++at_;
    if (conversion == 'r') value = renderer_.heap().text(to_repr(value, renderer_.budget()));
    if (conversion == 's') value = renderer_.text_of(value);
    if (conversion && conversion != 'r' && conversion != 's') return renderer_.fail("a format conversion is unknown");
    return renderer_.budget().failed() ? Value() : format_value(renderer_, value, spec);
  }

  void read_spec(Text& spec, bool may_nest) {
    while (at_ < text_.size() && text_[at_] != '}' && !renderer_.budget().failed()) {
      if (text_[at_] != '{') {
        spec.append(format_, at_, at_ + 1);
        ++at_;
        continue;
      }
      ++at_;
      if (!may_nest) {
        renderer_.fail("format fields are nested too deeply");
      } else {
        spec.append(*renderer_.text_of(field(false)));
      }
    }
  }

  Value look_up(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, first_end));
    size_t at = first_end;
    while (at < name.size() && !renderer_.budget().failed()) {
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        value = renderer_.attribute(value, name.substr(at + 1, end - at - 1));
        at = end;
        continue;
      }
      const size_t end = name.find(']', at);
      if (name[at] != '[' || end == std::string_view::npos) return renderer_.fail("a format field is malformed");
      value = renderer_.item(value, key(name.substr(at + 1, end - at - 1)));
      at = end + 1;
    }
    return value;
  }

  Value key(std::string_view text) {
    int64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = !text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
    return is_number ? Value(number) : renderer_.heap().text(std::string(text));
  }

  Value first(std::string_view name) {
    const auto& positional = arguments_.positional;
    size_t position = next_;
    if (name.empty()) {
      ++next_;
    } else if (const auto parsed = std::from_chars(name.data(), name.data() + name.size(), position);
               parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) {
      for (const auto& [known, value] : arguments_.named) {
        if (known == name) return value;
      }
      return renderer_.fail(fmt::format("a format string names '{}', which was not given", name));
    }
    if (position < positional.size()) return positional[position];
    return renderer_.fail("a format string has more fields than values");
  }

  Renderer& renderer_;
  const Text& format_;
  std::string_view text_;
  const Arguments& arguments_;
  size_t at_ = 0;
  size_t next_ = 0;
  Text out_;
};

/// One run over the fields of a percent format.
class PercentFormat {
 public:
  PercentFormat(Renderer& renderer, const Text& format, const Value& values)
      : renderer_(renderer), format_(format), text_(format.bytes), values_(values) {
    const ValueList* sequence = values.sequence();
    if (sequence && sequence->kind == ValueList::Kind::tuple) tuple_ = sequence;
  }

  Value run() {
    while (at_ < text_.size() && renderer_.budget().spend()) {
      const size_t percent = std::min(text_.find('%', at_), text_.size());
      out_.append(format_, at_, percent);
      at_ = percent + 1;
      if (percent == text_.size()) break;
      field();
      if (!renderer_.budget().allows_text(static_cast<int64_t>(out_.size()))) return {};
    }
    const size_t given = tuple_ ? tuple_->items.size() : values_.dict() || values_.sequence() ? next_ : 1;
    if (next_ < given) return renderer_.fail("not all values were used by the format string");
    return renderer_.heap().text(std::move(out_));
  }

 private:
  void field() {
    const Value* value = nullptr;
    if (at_ < text_.size() && text_[at_] == '(') {
      const size_t end = text_.find(')', at_);
      const Dict* dict = values_.dict();
      value = end != std::string_view::npos && dict ? dict->find(text_.substr(at_ + 1, end - at_ - 1)) : nullptr;
      if (!value) return static_cast<void>(renderer_.fail("a format string names a value that was not given"));
      at_ = end + 1;
    }
    Spec spec;
    spec.align = '>';
    char flag = '\0';
    std::string_view rest = text_.substr(at_);
    while (take(rest, "#0- +", flag)) set_flag(spec, flag);
    spec.width = take_number(rest, kMaxWidth);
    if (take(rest, ".", flag)) spec.precision = static_cast<int>(take_number(rest, kMaxPrecision));
    if (rest.empty() || spec.width > kMaxWidth || spec.precision > kMaxPrecision) {
      return static_cast<void>(renderer_.fail("a field of a format string is malformed"));
    }
    const char type = rest[0];
    at_ = text_.size() - rest.size() + 1;
    if (type == '%') return out_.append("%", true);
    if (!value) value = next_value();
    if (value) out_.append(*renderer_.text_of(convert(*value, type, spec)));
  }

  static void set_flag(Spec& spec, char flag) {
    if (flag == '-') spec.align = '<';
    if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
    if (flag == '#') spec.alternate = true;
    if (flag == '0') spec.zero = true;
  }

  const Value* next_value() {
    const size_t position = next_++;
    if (tuple_ && position < tuple_->items.size()) return &tuple_->items[position];
    if (!tuple_ && position == 0) return &values_;
    renderer_.fail("not enough values for the format string");
    return nullptr;
  }

  Value convert(const Value& value, char type, Spec spec) {
    if (type == 's' || type == 'r' || type == 'a') {
      Text shown = type == 's' ? to_text(value, renderer_.budget()) : to_repr(value, renderer_.budget());
      if (spec.precision >= 0) {
        shown = shown.slice(0, character_offset(shown.bytes, static_cast<size_t>(spec.precision)));
      }
      return renderer_.heap().text(pad("", shown, spec, '>'));
    }
    if (spec.zero && spec.align != '<') {
      spec.fill = "0";
      spec.align = '=';
    }
    if (std::string_view("diuxXofFeEgG").find(type) == std::string_view::npos) {
      return renderer_.fail(fmt::format("the format character '{}' is not supported", type));
    }
    if (!value.is_number()) return renderer_.fail(fmt::format("%{} needs a number, not '{}'", type, value.type_name()));
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (spec.type == 'd' && value.is_float()) {
      if (!(std::fabs(value.number()) < 9.2e18)) return renderer_.fail("an integer does not fit into 64 bits");
      return format_number(renderer_, static_cast<int64_t>(value.number()), spec);
    }
    if (value.is_bool()) return format_number(renderer_, value.integer(), spec);
    return format_number(renderer_, value, spec);
  }

  Renderer& renderer_;
  const Text& format_;
  std::string_view text_;
  const Value& values_;
  const ValueList* tuple_ = nullptr;
  size_t at_ = 0;
  size_t next_ = 0;
  Text out_;
};

}  // namespace

Value format_percent(Renderer& renderer, const Text& format, const Value& values) {
  return PercentFormat(renderer, format, values).run();
}

Value format_braces(Renderer& renderer, const Text& format, const Arguments& arguments) {
  return BraceFormat(renderer, format, arguments).run();
}

}  // namespace quern
