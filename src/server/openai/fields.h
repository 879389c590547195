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

/// A null member counts as absent. The first error is kept, later reads then mean nothing; whoever reads asks `error`
/// at the end. A field that was never read is unknown.
class Fields {
 public:
  enum class Kind { boolean, number, string, array, object, any };
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  /// `object` must outlive the reader. `path` comes before names in errors, as "messages[0].".
  explicit Fields(const Json& object, std::string path = "");

  const Json* any(std::string_view name);
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

  void fail(ApiError error);
  void invalid(std::string_view name, std::string_view code, std::string message);
  void wrong_kind(std::string_view name, std::string_view expected, const Json& value);
  bool failed() const { return error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

  std::vector<std::string> unknown() const;
  /// The known name that looks most like this one.
  std::string nearest(std::string_view name) const;
  std::string full_name(std::string_view name) const { return path_ + std::string(name); }

 private:
  const Json& object_;
  const std::string path_;
  std::vector<std::string> known_;
  std::optional<ApiError> error_;
};

/// Adds the ids in `list`, named `name` in errors, to `out`.
std::optional<ApiError> read_token_ids(const Json::Array& list, const std::string& name, int32_t limit,
                                       std::vector<int32_t>& out);
/// The value as an integer; 5.0 counts as 5.
std::optional<int64_t> whole(const Json& value);

}  // namespace quern
