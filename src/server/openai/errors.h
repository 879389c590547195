// ApiError: a refusal as OpenAI's clients understand it; Checked<T>: a value or such a refusal. Values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "net/http.h"

namespace quern {

struct ApiError {
  int status = 400;
  std::string message;
  std::string code = "";   // "": null
  std::string param = "";  // "": null
  std::string type = "invalid_request_error";
  int retry_after_s = 0;
  int64_t prompt_tokens = 0;  // with context_length_exceeded, where they are known
  int64_t context_tokens = 0;
};

/// The error object with its outer braces, on one line.
std::string error_body(const ApiError& error);
HttpResponse error_response(const ApiError& error);

/// The error for a status that has no parameter: 401, 404, 429, 500, 503, 504 ...
ApiError plain_error(int status, std::string message);
ApiError unsupported(std::string param, std::string message);
/// No model is called so; `known` are, and the one that is most like it is named first.
ApiError model_not_found(std::string_view name, std::span<const std::string> known);

template <typename T>
class [[nodiscard]] Checked {
 public:
  Checked(T value) : state_(std::in_place_index<0>, std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Checked(ApiError error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  T& value() & {
    CHECK(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(ok());
    return std::get<0>(std::move(state_));
  }
  const ApiError& error() const& {
    CHECK(!ok());
    return std::get<1>(state_);
  }
  ApiError&& error() && {
    CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, ApiError> state_;
};

}  // namespace quern
