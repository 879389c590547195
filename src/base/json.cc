#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace quern {
namespace {

/// Builds a Json from nlohmann's events; the parser itself is not recursive, so depth costs no stack.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(int max_depth, Json::Repeated repeated) : max_depth_(max_depth), repeated_(repeated) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return add(Json(static_cast<double>(value)));
    return add(Json(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!std::isfinite(value)) return fail(fmt::format("number {} is out of range", text));
    return add(Json(value));
  }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return fail("unexpected binary value"); }
  bool start_object(std::size_t) override { return open(Json(Json::Object{})); }
  bool start_array(std::size_t) override { return open(Json(Json::Array{})); }
  bool end_object() override {
    Json::Object& members = stack_.back().members();
    const std::optional<std::string> key = drop_repeated(members);
    if (key && repeated_ == Json::Repeated::refused)
      return fail(fmt::format("key {} is there twice", Json(*key).dump()));
    return close();
  }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    keys_.back() = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    std::string text = error.what();
    const size_t start = text.find("syntax error");
    if (start != std::string::npos) text = text.substr(start);
    return fail(fmt::format("{} (at byte {})", text, position));
  }

  Json take() { return std::move(root_); }
  std::string message;

 private:
  bool fail(std::string text) {
    if (message.empty()) message = std::move(text);
    return false;
  }
  bool open(Json container) {
    if (static_cast<int>(stack_.size()) >= max_depth_)
      return fail(fmt::format("nested deeper than {} levels", max_depth_));
    stack_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Json done = std::move(stack_.back());
    stack_.pop_back();
    keys_.pop_back();
    return add(std::move(done));
  }
  bool add(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (stack_.back().is_array()) {
      stack_.back().items().push_back(std::move(value));
    } else {
      stack_.back().members().emplace_back(std::move(keys_.back()), std::move(value));
    }
    return true;
  }
  /// Keeps the last of equal keys; one of the keys that were there twice.
  static std::optional<std::string> drop_repeated(Json::Object& members) {
    std::unordered_map<std::string_view, size_t> last;
    for (size_t i = 0; i < members.size(); ++i) last[members[i].first] = i;
    if (last.size() == members.size()) return std::nullopt;
    std::optional<std::string> repeated;
    std::vector<bool> keep(members.size());
    for (size_t i = 0; i < members.size(); ++i) keep[i] = last.at(members[i].first) == i;
    Json::Object kept;
    for (size_t i = 0; i < members.size(); ++i) {
      if (keep[i]) {
        kept.push_back(std::move(members[i]));
      } else {
        repeated = std::move(members[i].first);
      }
    }
    members = std::move(kept);
    return repeated;
  }

  const int max_depth_;
  const Json::Repeated repeated_;
  Json root_;
  std::vector<Json> stack_;
  std::vector<std::string> keys_;
};

/// Length of the valid UTF-8 sequence at `text[at]`, 0 when there is none.
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(at);
  const unsigned second = byte(at + 1);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(at + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!follows(at + 1) || !follows(at + 2) || (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F))
      return 0;
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!follows(at + 1) || !follows(at + 2) || !follows(at + 3)) return 0;
    return (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F) ? 0 : 4;
  }
  return 0;
}

void append_json(std::string& out, const Json& json) {
  if (json.is_null()) {
    out += "null";
  } else if (json.is_bool()) {
    out += json.as_bool() ? "true" : "false";
  } else if (json.is_integer()) {
    out += std::to_string(json.as_integer());
  } else if (json.is_number()) {
    append_json_number(out, json.as_number());
  } else if (json.is_string()) {
    append_json_string(out, json.as_string());
  } else if (json.is_array()) {
    out += '[';
    for (const Json& item : json.items()) {
      if (&item != json.items().data()) out += ',';
      append_json(out, item);
    }
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, value] : json.members()) {
      if (!first) out += ',';
      first = false;
      append_json_string(out, key);
      out += ':';
      append_json(out, value);
    }
    out += '}';
  }
}

}  // namespace

Result<Json> Json::parse(std::string_view text, int max_depth, Repeated repeated) {
  // The parser below takes a NUL for the end of the text.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) return Error{fmt::format("syntax error: a NUL character (at byte {})", nul)};
  Builder builder(max_depth, repeated);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return Error{builder.message.empty() ? "invalid JSON" : builder.message};
  }
  return builder.take();
}

const Json* Json::find(std::string_view key) const {
  const auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) return nullptr;
  const auto it = std::find_if(object->begin(), object->end(), [&](const auto& member) { return member.first == key; });
  return it == object->end() ? nullptr : &it->second;
}

const Json* Json::present(std::string_view key) const {
  const Json* found = find(key);
  return found != nullptr && !found->is_null() ? found : nullptr;
}

std::optional<int64_t> Json::integer(std::string_view key) const {
  const Json* found = find(key);
  return found != nullptr && found->is_integer() ? std::optional(found->as_integer()) : std::nullopt;
}

std::optional<double> Json::number(std::string_view key) const {
  const Json* found = find(key);
  return found != nullptr && found->is_number() ? std::optional(found->as_number()) : std::nullopt;
}

std::optional<bool> Json::boolean(std::string_view key) const {
  const Json* found = find(key);
  return found != nullptr && found->is_bool() ? std::optional(found->as_bool()) : std::nullopt;
}

std::optional<std::string> Json::string(std::string_view key) const {
  const Json* found = find(key);
  return found != nullptr && found->is_string() ? std::optional(found->as_string()) : std::nullopt;
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  for (auto& [name, member] : members()) {
    if (name == key) {
      member = std::move(value);
      return *this;
    }
  }
  members().emplace_back(std::string(key), std::move(value));
  return *this;
}

std::string Json::dump() const {
  std::string out;
  append_json(out, *this);
  return out;
}

std::string_view Json::kind() const {
  static constexpr std::string_view names[] = {"null",     "a boolean", "an integer", "a number",
                                               "a string", "an array",  "an object"};
  return names[value_.index()];
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t length = utf8_length(text, i);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++i;
      continue;
    }
    if (length > 1) {
      out.append(text, i, length);
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    }
    i += length;
  }
  out += '"';
}

void append_json_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out += text;
  if (text.find_first_of(".en") == std::string_view::npos) out += ".0";
}

}  // namespace quern
