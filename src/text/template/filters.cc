// Filters on single values; those on sequences are in template_sequence_filters.cc.
#include "text/template/filters.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <unordered_map>

#include "text/template/format.h"
#include "text/template/operators.h"
#include "text/template/print.h"

namespace quern {

namespace {

Value filter_safe(Renderer& renderer, const Value& self, const Arguments&) {
  Text text = *renderer.text_of(self);
  text.markup = true;
  return renderer.heap().text(std::move(text));
}

Value filter_escape(Renderer& renderer, const Value& self, const Arguments&) {
  const TextRef text = renderer.text_of(self);
  return text->markup ? Value(text) : renderer.heap().text(escape_html(*text));
}

Value filter_forceescape(Renderer& renderer, const Value& self, const Arguments&) {
  return renderer.heap().text(escape_html(*renderer.text_of(self)));
}

Value filter_string(Renderer& renderer, const Value& self, const Arguments&) { return renderer.text_of(self); }

template <Case wanted>
Value filter_case(Renderer& renderer, const Value& self, const Arguments&) {
  const TextRef text = renderer.text_of(self);
  renderer.budget().spend_bytes(8 * text->size());
  return renderer.heap().text(change_case(*text, wanted));
}

/// Unlike str.title, words begin after white space and opening brackets only.
Value filter_title(Renderer& renderer, const Value& self, const Arguments&) {
  const TextRef text = renderer.text_of(self);
  renderer.budget().spend_bytes(8 * text->size());
  const Text upper = change_case(*text, Case::upper);
  Text result;
  bool word_begins = true;
  for (size_t i = 0; i < text->size();) {
    const size_t end = i + character_size(text->bytes, i);
    const uint32_t c = character_at(text->bytes, i);
    result.append(change_case(text->slice(i, end), word_begins ? Case::upper : Case::lower));
    word_begins = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
    i = end;
  }
  return renderer.heap().text(std::move(result));
}

Value filter_trim(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "trim", arguments, {"chars"});
  const TextRef text = renderer.text_of(self);
  if (!bound[0] || bound[0]->is_none()) return renderer.heap().text(strip_text(*text, nullptr, true, true));
  const TextRef characters = bound.text(0);
  return renderer.heap().text(strip_text(*text, characters.get(), true, true));
}

Value filter_replace(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "replace", arguments, {"old", "new", "count"}, 2);
  if (renderer.budget().failed()) return {};
  const int64_t count = bound[2] && bound[2]->is_none() ? -1 : bound.integer(2, -1);
  return replace_text(renderer, *renderer.text_of(self), *renderer.text_of(*bound[0]), *renderer.text_of(*bound[1]),
                      count);
}

Value filter_center(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "center", arguments, {"width"});
  return center_text(renderer, *renderer.text_of(self), bound.integer(0, 80), Text(" "));
}

Value filter_indent(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "indent", arguments, {"width", "first", "blank"});
  if (!self.is_text()) return renderer.fail(fmt::format("indent needs a string, not '{}'", self.type_name()));
  Text indention;
  if (bound[0] && bound[0]->is_text()) {
    indention = bound[0]->text();
  } else {
    const int64_t width = std::max<int64_t>(0, bound.integer(0, 4));
    if (!renderer.budget().allows_text(width)) return {};
    indention = Text(std::string(static_cast<size_t>(width), ' '));
  }
  Text text = self.text();
  text.append("\n", true);  // so that a final newline survives the split
  const std::vector<Text> lines = split_lines(text, false);
  Text result;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.append("\n", true);
    const bool wanted = i == 0 ? bound.flag(1) : bound.flag(2) || !lines[i].empty();
    if (wanted) result.append(indention);
    result.append(lines[i]);
    if (!renderer.budget().spend() || !renderer.budget().allows_text(static_cast<int64_t>(result.size()))) return {};
  }
  return renderer.heap().text(std::move(result));
}

Value filter_truncate(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (!self.is_text()) return renderer.fail(fmt::format("truncate needs a string, not '{}'", self.type_name()));
  const int64_t wanted = bound.integer(0, 255);
  const TextRef end = bound.text(2, "...");
  const int64_t leeway = bound[3] && bound[3]->is_none() ? 5 : bound.integer(3, 5);
  const auto end_length = static_cast<int64_t>(count_characters(end->bytes));
  if (wanted < end_length || leeway < 0) return renderer.fail("truncate needs a length of at least that of its end");
  const Text& text = self.text();
  const auto size = static_cast<int64_t>(count_characters(text.bytes));
  if (size - leeway <= wanted) return self;
  Text result = text.slice(0, character_offset(text.bytes, static_cast<size_t>(wanted - end_length)));
  if (!bound.flag(1)) {
    const size_t space = result.bytes.rfind(' ');
    if (space != std::string::npos) result = result.slice(0, space);
  }
  result.append(*end);
  return renderer.heap().text(std::move(result));
}

Value filter_wordcount(Renderer& renderer, const Value& self, const Arguments&) {
  const TextRef text = renderer.text_of(self);
  renderer.budget().spend_bytes(text->size());
  int64_t count = 0;
  bool inside = false;
  for (size_t i = 0; i < text->size(); i += character_size(text->bytes, i)) {
    const bool word = is_word(character_at(text->bytes, i));
    if (word && !inside) ++count;
    inside = word;
  }
  return count;
}

Value filter_urlencode(Renderer& renderer, const Value& self, const Arguments&) {
  if (self.dict() || self.sequence()) return renderer.fail("urlencode is for strings here");
  Text result;
  renderer.text_of(self)->each_run([&](std::string_view run, bool trusted) {
    std::string encoded;
    for (const char c : run) {
      const bool plain =
          std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_.-~/").find(c) != std::string_view::npos;
      if (plain) {
        encoded += c;
      } else {
        encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
      }
    }
    result.append(encoded, trusted);
  });
  return renderer.heap().text(std::move(result));
}

Value filter_default(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "default", arguments, {"default_value", "boolean"});
  const bool missing = self.is_undefined() || (bound.flag(1) && !is_true(self));
  if (!missing) return self;
  return bound[0] ? *bound[0] : renderer.heap().text("");
}

Value filter_format(Renderer& renderer, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    return renderer.fail("format can't handle positional and keyword arguments at the same time");
  }
  const TextRef format = renderer.text_of(self);
  if (arguments.named.empty()) return format_percent(renderer, *format, renderer.heap().tuple(arguments.positional));
  Dict* values = renderer.heap().dict();
  for (const auto& [name, value] : arguments.named) values->set(renderer.heap().text(name), value, renderer.budget());
  return format_percent(renderer, *format, values);
}

/// The number that a string spells, Python's way: spaces around and single underscores between digits are allowed.
template <typename T, typename... Options>
std::optional<T> parse_number(const Text& text, bool sign_allowed, Options... options) {
  const Text stripped = strip_text(text, nullptr, true, true);
  std::string digits;
  for (size_t i = 0; i < stripped.size(); ++i) {
    const char c = stripped.bytes[i];
    if (c != '_') {
      digits += c;
    } else if (i == 0 || i + 1 == stripped.size() || !std::isalnum(static_cast<unsigned char>(stripped.bytes[i - 1])) ||
               !std::isalnum(static_cast<unsigned char>(stripped.bytes[i + 1]))) {
      return {};
    }
  }
  std::string_view rest = digits;
  if (sign_allowed && rest.starts_with('+') && !rest.substr(1).starts_with('-')) rest.remove_prefix(1);
  T number{};
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), number, options...);
  if (rest.empty() || parsed.ec != std::errc() || parsed.ptr != rest.data() + rest.size()) return {};
  return number;
}

std::optional<int64_t> parse_integer(const Text& text, int64_t base) {
  Text digits = strip_text(text, nullptr, true, true);
  const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
  const std::string lower = change_case(digits, Case::lower).bytes;
  if (!prefix.empty() && lower.starts_with(prefix)) digits = digits.slice(2, digits.size());
  if (base < 2 || base > 36) return {};
  return parse_number<int64_t>(digits, true, static_cast<int>(base));
}

std::optional<int64_t> truncate_float(double number) {
  if (!(std::fabs(number) < 9.2e18)) return {};
  return static_cast<int64_t>(number);
}

Value filter_int(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "int", arguments, {"default", "base"});
  if (self.is_undefined() && self.undefined().message) return renderer.fail(*self.undefined().message);
  std::optional<int64_t> number;
  if (self.is_integral()) number = self.integer();
  if (self.is_float()) number = truncate_float(self.number());
  if (self.is_text()) {
    number = parse_integer(self.text(), bound.integer(1, 10));
    const auto real = number ? std::nullopt : parse_number<double>(self.text(), true);
    if (real) number = truncate_float(*real);
  }
  if (number) return *number;
  return bound[0] ? *bound[0] : Value(int64_t{0});
}

Value filter_float(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "float", arguments, {"default"});
  if (self.is_undefined() && self.undefined().message) return renderer.fail(*self.undefined().message);
  if (self.is_number()) return self.number();
  const auto number = self.is_text() ? parse_number<double>(self.text(), true) : std::nullopt;
  if (number) return *number;
  return bound[0] ? *bound[0] : Value(0.0);
}

Value filter_abs(Renderer& renderer, const Value& self, const Arguments&) {
  if (self.is_float()) return std::fabs(self.number());
  if (self.is_integral()) return self.integer() < 0 ? negate(renderer, self, true) : Value(self.integer());
  return renderer.fail(fmt::format("abs needs a number, not '{}'", self.type_name()));
}

/// Python's round to a number of decimals: exact, halves to even.
double round_decimals(double number, int precision) {
  if (precision < 0) {
    const double scale = std::pow(10.0, -precision);
    return std::nearbyint(number / scale) * scale;
  }
  return std::strtod(fmt::format("{:.{}f}", number, precision).c_str(), nullptr);
}

Value filter_round(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "round", arguments, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const TextRef method = bound.text(1, "common");
  if (!self.is_number()) return renderer.fail(fmt::format("round needs a number, not '{}'", self.type_name()));
  if (precision < -300 || precision > 300) return renderer.fail("round needs a precision between -300 and 300");
  const double number = self.number();
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method->bytes == "ceil") return std::ceil(number * scale) / scale;
  if (method->bytes == "floor") return std::floor(number * scale) / scale;
  if (method->bytes != "common") return renderer.fail("the method of round must be common, ceil or floor");
  if (!std::isfinite(number)) return number;
  if (self.is_float()) return round_decimals(number, static_cast<int>(precision));
  if (precision >= 0) return self.integer();
  return truncate_float(round_decimals(number, static_cast<int>(precision))).value_or(0);
}

Value filter_filesizeformat(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "filesizeformat", arguments, {"binary"});
  const Value number = filter_float(renderer, self, {});
  const double bytes = number.is_float() ? number.number() : 0;
  const bool binary = bound.flag(0);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return renderer.heap().text("1 Byte");
  if (bytes < base) return renderer.heap().text(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  static constexpr std::string_view kLetters = "kMGTPEZY";
  double unit = base * base;
  size_t i = 0;
  while (i + 1 < kLetters.size() && bytes >= unit) {
    unit *= base;
    ++i;
  }
  const char letter = binary && i == 0 ? 'K' : kLetters[i];
  return renderer.heap().text(fmt::format("{:.1f} {}{}", base * bytes / unit, letter, binary ? "iB" : "B"));
}

Value filter_tojson(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.flag(0);
  style.sort_keys = bound.flag(3);
  if (bound[1] && bound[1]->is_text()) {
    style.indent = bound[1]->text().bytes;
  } else if (bound[1] && !bound[1]->is_none()) {
    const int64_t width = std::clamp<int64_t>(bound.integer(1, 0), 0, 1000);
    style.indent = std::string(static_cast<size_t>(width), ' ');
  }
  if (bound[2] && !bound[2]->is_none()) {
    const std::vector<Value> separators = renderer.items_of(*bound[2]);
    if (separators.size() != 2 || !separators[0].is_text() || !separators[1].is_text()) {
      return renderer.fail("the separators of tojson are two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  if (renderer.budget().failed()) return {};
  return renderer.heap().text(to_json(self, style, renderer.budget()));
}

/// Not part of Jinja; templates of DeepSeek expect it.
Value filter_from_json(Renderer& renderer, const Value& self, const Arguments&) {
  if (!self.is_text()) return renderer.fail(fmt::format("from_json needs a string, not '{}'", self.type_name()));
  renderer.budget().spend_bytes(16 * self.text().size());
  auto json = Json::parse(self.text().bytes);
  if (!json.ok()) return renderer.fail(fmt::format("from_json: {}", json.error().message));
  return renderer.heap().from_json(*json, self.text().trusted && self.text().flips.empty());
}

Value filter_attr(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "attr", arguments, {"name"}, 1);
  const TextRef name = bound.text(0);
  if (renderer.budget().failed()) return {};
  if (self.dict() && !find_method(self, name->bytes)) {  // only attributes here, no items
    return renderer.heap().undefined(fmt::format("'dict object' has no attribute '{}'", name->bytes));
  }
  return renderer.attribute(self, name->bytes);
}

}  // namespace

NativeCode find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, NativeCode> kFilters = {
      {"abs", filter_abs},
      {"attr", filter_attr},
      {"capitalize", filter_case<Case::capitalize>},
      {"center", filter_center},
      {"d", filter_default},
      {"default", filter_default},
      {"e", filter_escape},
      {"escape", filter_escape},
      {"filesizeformat", filter_filesizeformat},
      {"float", filter_float},
      {"forceescape", filter_forceescape},
      {"format", filter_format},
      {"from_json", filter_from_json},
      {"indent", filter_indent},
      {"int", filter_int},
      {"lower", filter_case<Case::lower>},
      {"replace", filter_replace},
      {"round", filter_round},
      {"safe", filter_safe},
      {"string", filter_string},
      {"title", filter_title},
      {"tojson", filter_tojson},
      {"trim", filter_trim},
      {"truncate", filter_truncate},
      {"upper", filter_case<Case::upper>},
      {"urlencode", filter_urlencode},
      {"wordcount", filter_wordcount},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? find_sequence_filter(name) : found->second;
}

}  // namespace quern
