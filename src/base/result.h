// Result<T>: a value, or one sentence that tells a person what to do. For everything that comes from outside.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace quern {

/// Why something from outside was refused. `message` is one sentence without a final newline.
struct Error {
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CHECK(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(ok());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    CHECK(error_);
    return *error_;
  }
  Error&& error() && {
    CHECK(error_);
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace quern

#define QUERN_CONCAT_(a, b) a##b
#define QUERN_CONCAT(a, b) QUERN_CONCAT_(a, b)

/// TRY(expression): returns the expression's error from the calling function.
#define TRY(expression)                                           \
  do {                                                            \
    auto try_result_ = (expression);                              \
    if (!try_result_.ok()) return std::move(try_result_).error(); \
  } while (false)

/// ASSIGN_OR_RETURN(auto x, expression): x becomes the value, or the calling function returns the error.
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_(QUERN_CONCAT(assign_result_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_(result, target, expression) \
  auto result = (expression);                         \
  if (!result.ok()) return std::move(result).error(); \
  target = std::move(result).value()
