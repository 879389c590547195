#include "text/template/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "text/template/renderer.h"

namespace quern {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  const size_t e = shortest.find('e');
  const int exponent = std::stoi(std::string(shortest.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", shortest.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  const auto fixed_end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

namespace {

/// Writes str or repr of nested values; all containers share its nesting and budget.
class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  void print(const Value& value) {
    const Level level(budget_);
    if (!level || !budget_.spend() || !budget_.allows_text(static_cast<int64_t>(out_.size()))) return;
    if (value.is_text()) return print_string(value.text());
    if (const ValueList* sequence = value.sequence()) return print_sequence(*sequence);
    if (const Dict* dict = value.dict()) return print_dict(*dict);
    if (const auto* space = value.as<Namespace>()) {
      write("<Namespace ");
      print_dict(*space->attributes);
      return write(">");
    }
    write(scalar(value));
  }

  Text take() { return std::move(out_); }

  static std::string scalar(const Value& value) {
    if (value.is_undefined()) return "Undefined";
    if (value.is_none()) return "None";
    if (value.is_bool()) return value.integer() ? "True" : "False";
    if (value.is_integer()) return std::to_string(value.integer());
    if (value.is_float()) return float_text(value.number());
    if (const auto* macro = value.as<Macro>()) return fmt::format("<Macro '{}'>", macro->syntax->name);
    return fmt::format("<{}>", value.type_name());
  }

 private:
  void write(std::string_view text) { out_.append(text, true); }

  void print_items(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size() && !budget_.failed(); ++i) {
      if (i > 0) write(", ");
      print(items[i]);
    }
  }

  void print_sequence(const ValueList& sequence) {
    using Kind = ValueList::Kind;
    switch (sequence.kind) {
      case Kind::list:
        write("[");
        print_items(sequence.items);
        return write("]");
      case Kind::tuple:
        write("(");
        print_items(sequence.items);
        return write(sequence.items.size() == 1 ? ",)" : ")");
      case Kind::range:
        write(fmt::format("range({}, {}", sequence.start, sequence.stop));
        return write(sequence.step == 1 ? ")" : fmt::format(", {})", sequence.step));
      case Kind::generator: return write("<generator object>");
      default:
        write(fmt::format("{}([", sequence.type_name()));
        print_items(sequence.items);
        return write("])");
    }
  }

  void print_dict(const Dict& dict) {
    write("{");
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (budget_.failed()) return;
      if (!first) write(", ");
      first = false;
      print(key);
      write(": ");
      print(value);
    }
    write("}");
  }

  void print_string(const Text& text) {
    budget_.spend_bytes(text.size());
    const bool double_quotes = text.bytes.find('\'') != std::string::npos && text.bytes.find('"') == std::string::npos;
    const char quote = double_quotes ? '"' : '\'';
    write(std::string(1, quote));
    text.each_run([&](std::string_view run, bool trusted) {
      std::string escaped;
      for (size_t i = 0; i < run.size(); i += character_size(run, i)) append_escaped(escaped, run, i, quote);
      out_.append(escaped, trusted);
    });
    write(std::string(1, quote));
  }

  static void append_escaped(std::string& out, std::string_view run, size_t i, char quote) {
    const uint32_t c = character_at(run, i);
    switch (c) {
      case '\\': out += "\\\\"; return;
      case '\n': out += "\\n"; return;
      case '\r': out += "\\r"; return;
      case '\t': out += "\\t"; return;
      default: break;
    }
    if (c == static_cast<uint32_t>(quote)) {
      out += '\\';
      out += quote;
    } else if (is_printable(c)) {
      out += run.substr(i, character_size(run, i));
    } else {
      out += c < 0x100     ? fmt::format("\\x{:02x}", c)
             : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                           : fmt::format("\\U{:08x}", c);
    }
  }

  Budget& budget_;
  Text out_;
};

}  // namespace

Text to_text(const Value& value, Budget& budget) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return Text();
  return to_repr(value, budget);
}

Text to_repr(const Value& value, Budget& budget) {
  Printer printer(budget);
  printer.print(value);
  return printer.take();
}

namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {
    item_separator_ = style.item_separator.value_or(Text(style.indent ? "," : ", "));
    key_separator_ = style.key_separator.value_or(Text(": "));
  }

  void write(const Value& value) {
    const Level level(budget_);
    if (!level || !budget_.spend() || !budget_.allows_text(static_cast<int64_t>(out_.size()))) return;
    if (value.is_text()) return write_string(value.text());
    if (value.is_none() || value.is_number()) return write_scalar(value);
    const ValueList* sequence = value.sequence();
    if (sequence && (sequence->kind == ValueList::Kind::list || sequence->kind == ValueList::Kind::tuple)) {
      return write_list(*sequence);
    }
    if (value.dict()) return write_dict(*value.dict());
    budget_.fail(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
  }

  Text take() { return std::move(out_); }

 private:
  void put(std::string_view text) { out_.append(text, true); }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.integer() ? "true" : "false";
    if (value.is_integer()) return std::to_string(value.integer());
    if (std::isnan(value.number())) return "NaN";
    if (std::isinf(value.number())) return value.number() < 0 ? "-Infinity" : "Infinity";
    return float_text(value.number());
  }

  void write_scalar(const Value& value) { put(scalar(value)); }

  void new_line() {
    if (!style_.indent) return;
    std::string line = "\n";
    for (int i = 0; i < depth_; ++i) line += *style_.indent;
    put(line);
  }

  void write_list(const ValueList& list) {
    if (list.items.empty()) return put("[]");
    put("[");
    ++depth_;
    for (size_t i = 0; i < list.items.size() && !budget_.failed(); ++i) {
      if (i > 0) out_.append(item_separator_);
      new_line();
      write(list.items[i]);
    }
    --depth_;
    new_line();
    put("]");
  }

  void write_dict(const Dict& dict) {
    if (dict.entries.empty()) return put("{}");
    put("{");
    ++depth_;
    bool first = true;
    for (const auto* entry : in_order(dict)) {
      if (budget_.failed()) return;
      if (!first) out_.append(item_separator_);
      first = false;
      new_line();
      write_key(entry->first);
      out_.append(key_separator_);
      write(entry->second);
    }
    --depth_;
    new_line();
    put("}");
  }

  std::vector<const std::pair<Value, Value>*> in_order(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> result;
    result.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) result.push_back(&entry);
    if (!style_.sort_keys) return result;
    const auto positions = sorted_positions(result.size(), [&](size_t a, size_t b) {
      return order(dict.entries[a].first, dict.entries[b].first, budget_) < 0;
    });
    for (size_t i = 0; i < result.size(); ++i) result[i] = &dict.entries[positions[i]];
    return result;
  }

  void write_key(const Value& key) {
    if (key.is_text()) return write_string(key.text());
    if (key.is_none() || key.is_number()) return write_string(Text(scalar(key)));
    budget_.fail(fmt::format("keys of JSON must be strings or numbers, not {}", key.type_name()));
  }

  void write_string(const Text& text) {
    budget_.spend_bytes(text.size());
    put("\"");
    text.each_run([&](std::string_view run, bool trusted) {
      std::string escaped;
      escaped.reserve(run.size());
      for (size_t i = 0; i < run.size(); i += character_size(run, i)) append_escaped(escaped, run, i);
      out_.append(escaped, trusted);
    });
    put("\"");
  }

  void append_escaped(std::string& out, std::string_view run, size_t i) const {
    const char first = run[i];
    switch (first) {
      case '"': out += "\\\""; return;
      case '\\': out += "\\\\"; return;
      case '\n': out += "\\n"; return;
      case '\r': out += "\\r"; return;
      case '\t': out += "\\t"; return;
      case '\b': out += "\\b"; return;
      case '\f': out += "\\f"; return;
      default: break;
    }
    const uint32_t c = character_at(run, i);
    if (c < 0x20) {
      out += fmt::format("\\u{:04x}", c);
    } else if (c < 0x7F || !style_.ascii) {
      out += run.substr(i, character_size(run, i));
    } else if (c < 0x10000) {
      out += c == 0x7F ? "\x7F" : fmt::format("\\u{:04x}", c);
    } else {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
    }
  }

  const JsonStyle& style_;
  Budget& budget_;
  Text item_separator_, key_separator_;
  int depth_ = 0;
  Text out_;
};

}  // namespace

Text to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value);
  return writer.take();
}

}  // namespace quern
