// Fields: reads the members of a JSON object that came from a client, each with its type and range. One call's thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/openai/errors.h"

namespace quern {

/// What a reader looks for: its fields with their kinds and bounds, as the JSON Schema of an object. One thread.
class FieldNotes {
 public:
  /// Of several notes on a field the first that says something counts.
  void add(std::string_view name, Json schema);
  void require(std::string_view name) { required_.emplace_back(name); }
  void allow_absence(std::string_view name) { std::erase(required_, Json(name)); }
  /// Fields that need not be there may be null.
  Json schema() const;

 private:
  Json::Object properties_;
  Json::Array required_;
};

/// A null member counts as absent. The first error is kept, later reads then mean nothing; whoever reads asks `error`
/// at the end. A field that was never read is unknown.
class Fields {
 public:
  enum class Kind { boolean, number, string, array, object, any };
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  /// `object` must outlive the reader. `path` comes before names in errors, as "messages[0].".
  explicit Fields(const Json& object, std::string path = "");
  /// Notes what is read; nothing is there. A reader that runs on this describes its route, so that the description
  /// cannot say anything else than what requests are held to.
  explicit Fields(FieldNotes& notes);
  bool describing() const { return notes_ != nullptr; }

  const Json* any(std::string_view name);
  /// A value of one of these kinds.
  const Json* one_of(std::string_view name, std::initializer_list<Kind> kinds);
  /// Gives the fields of an object to `read`; false when it is not there.
  template <typename Read>
  bool members(std::string_view name, Read&& read) {
    if (describing()) {
      FieldNotes inner;
      Fields described(inner);
      read(described);
      notes_->add(name, inner.schema());
      return false;
    }
    const Json* const value = object(name);
    if (value == nullptr) return false;
    Fields inside(*value, full_name(name) + ".");
    read(inside);
    if (inside.failed()) fail(*inside.error());
    keep_names(name, inside);
    return true;
  }
  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> number(std::string_view name, double low, double high);
  std::optional<std::string> string(std::string_view name, size_t max_bytes = std::numeric_limits<size_t>::max());
  const Json::Array* array(std::string_view name, size_t max_items);
  const Json* object(std::string_view name);
  /// One of `values`.
  std::optional<std::string> choice(std::string_view name, std::initializer_list<std::string_view> values);
  /// Ids from 0 to `limit` - 1.
  std::optional<std::vector<int32_t>> token_ids(std::string_view name, int32_t limit, size_t max_items);

  /// Fields that are checked for their kind and mean nothing here.
  void ignore(Kind kind, std::initializer_list<std::string_view> names);
  /// Fields that this server cannot serve; what is neutral (null, false, "", [] and {}) is accepted.
  void refuse(std::initializer_list<std::string_view> names);

  /// Another field can stand in for one that is required.
  void describe_as_optional(std::string_view name) {
    if (describing()) notes_->allow_absence(name);
  }
  /// The end of what is read: a description goes no further.
  void stop_describing();
  void fail(ApiError error);
  void invalid(std::string_view name, std::string_view code, std::string message);
  void wrong_kind(std::string_view name, std::string_view expected, const Json& value);
  bool failed() const { return error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

  /// What has been read, in that order.
  const std::vector<std::string>& known() const { return known_; }
  /// Those inside of objects whose members were read too, as "stream_options.x".
  std::vector<std::string> unknown() const;
  /// The known name that looks most like this one.
  std::string nearest(std::string_view name) const;
  std::string full_name(std::string_view name) const { return path_ + std::string(name); }

 private:
  void note(std::string_view name, Json schema);
  void keep_names(std::string_view name, const Fields& inside);

  const Json& object_;
  const std::string path_;
  FieldNotes* const notes_ = nullptr;
  std::vector<std::string> known_;
  std::vector<std::string> known_inside_;
  std::vector<std::string> unknown_inside_;
  std::optional<ApiError> error_;
};

/// Adds the ids in `list`, named `name` in errors, to `out`.
std::optional<ApiError> read_token_ids(const Json::Array& list, const std::string& name, int32_t limit,
                                       std::vector<int32_t>& out);
/// The value as an integer; 5.0 counts as 5.
std::optional<int64_t> whole(const Json& value);

}  // namespace quern
