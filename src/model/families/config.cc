#include "model/families/config.h"

#include <cmath>
#include <fmt/format.h>

namespace quern {

const Json* Config::find(std::string_view key) const {
  if (text_ != nullptr) {
    if (const Json* value = text_->present(key)) return value;
  }
  if (const Json* value = whole_.present(key)) return value;
  return defaults_.present(key);
}

int Config::size(std::string_view key, int max) {
  if (find(key) == nullptr) {
    refuse(fmt::format("config: \"{}\" is missing", key));
    return 1;
  }
  return size_or(key, 1, max);
}

int Config::size_or(std::string_view key, int fallback, int max) {
  const int value = count_or(key, fallback, max);
  if (value > 0) return value;
  refuse(fmt::format("config: \"{}\" is 0, but must be positive", key));
  return 1;
}

int Config::count_or(std::string_view key, int fallback, int max) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_integer()) {
    refuse(fmt::format("config: \"{}\" is {}, but must be a whole number", key, value->kind()));
    return 1;
  }
  const int64_t number = value->as_integer();
  if (number >= 0 && number <= max) return static_cast<int>(number);
  refuse(fmt::format("config: \"{}\" is {}, but must be between 0 and {}", key, number, max));
  return 1;
}

double Config::number_or(std::string_view key, double fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_number() && std::isfinite(value->as_number())) return value->as_number();
  refuse(fmt::format("config: \"{}\" is {}, but must be a number", key, value->kind()));
  return 1.0;
}

bool Config::flag_or(std::string_view key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_bool()) return value->as_bool();
  refuse(fmt::format("config: \"{}\" is {}, but must be true or false", key, value->kind()));
  return fallback;
}

Activation Config::activation(std::string_view key, std::string_view fallback) {
  const Json* value = find(key);
  const std::string_view name = value == nullptr ? fallback : value->is_string() ? value->as_string() : value->kind();
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_tanh") return Activation::gelu_tanh;
  if (name == "relu") return Activation::relu;
  if (name == "gelu") return Activation::gelu_erf;
  refuse(fmt::format("config: \"{}\" is \"{}\", but must be silu, gelu, gelu_pytorch_tanh or relu", key, name));
  return Activation::silu;
}

void Config::refuse(std::string message) {
  if (!error_) error_ = Error{std::move(message)};
}

}  // namespace quern
