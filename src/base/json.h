// Json: a parsed JSON document as an ordinary value, object keys in the order of the text. Immutable use from any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace quern {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;
  Json(std::nullptr_t) {}                                       // NOLINT(google-explicit-constructor)
  Json(bool value) : value_(value) {}                           // NOLINT(google-explicit-constructor)
  Json(int value) : value_(int64_t{value}) {}                   // NOLINT(google-explicit-constructor)
  Json(int64_t value) : value_(value) {}                        // NOLINT(google-explicit-constructor)
  Json(double value) : value_(value) {}                         // NOLINT(google-explicit-constructor)
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Json(Array value) : value_(std::move(value)) {}               // NOLINT(google-explicit-constructor)
  Json(Object value) : value_(std::move(value)) {}              // NOLINT(google-explicit-constructor)

  /// What becomes of an object's equal keys.
  enum class Repeated : uint8_t { last_counts, refused };

  /// Parses one whole document. Refuses nesting deeper than `max_depth`, NaN, bad UTF-8 and text after the end. An
  /// integer beyond int64 becomes a double.
  static Result<Json> parse(std::string_view text, int max_depth = 64, Repeated repeated = Repeated::last_counts);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  /// The value itself; a CHECK fails when it is of another type.
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_integer() const { return std::get<int64_t>(value_); }
  double as_number() const { return is_integer() ? static_cast<double>(as_integer()) : std::get<double>(value_); }
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& items() const { return std::get<Array>(value_); }
  const Object& members() const { return std::get<Object>(value_); }
  Array& items() { return std::get<Array>(value_); }
  Object& members() { return std::get<Object>(value_); }

  /// The member of that name, or nullptr when there is none or this is no object.
  const Json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Like find, but a null member counts as absent.
  const Json* present(std::string_view key) const;

  /// Members by type; nothing when absent, null or of another type. `number` takes integers too.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;

  /// Adds or replaces a member of an object (a null becomes an object first).
  Json& set(std::string_view key, Json value);

  /// Compact JSON text; bytes that are no UTF-8 become U+FFFD.
  std::string dump() const;
  /// A name for messages: "a string", "an array", ...
  std::string_view kind() const;

  bool operator==(const Json&) const = default;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

/// Appends `text` as a JSON string with its quotes; bytes that are no UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);
/// Appends the shortest text that reads back as the same double; NaN and infinities become null.
void append_json_number(std::string& out, double value);

}  // namespace quern
