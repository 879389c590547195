// Config: config.json read with checks. The first thing wrong is kept; what is read after it has no meaning, only
// bounds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/result.h"
#include "model/spec.h"

namespace quern {

class Config {
 public:
  /// Keys are looked for in `text_config` first, then in the whole; a null counts as absent.
  explicit Config(const Json& whole) : whole_(whole), text_(whole.present("text_config")) {}

  /// What a family's files mean when they leave a key out; the first that is said counts.
  void set_default(std::string_view key, Json value) {
    if (defaults_.present(key) == nullptr) defaults_.set(key, std::move(value));
  }

  const Json* find(std::string_view key) const;

  /// A positive whole number of at most `max`; an error when absent.
  int size(std::string_view key, int max);
  int size_or(std::string_view key, int fallback, int max);
  /// The same, where 0 is allowed too.
  int count_or(std::string_view key, int fallback, int max);
  /// A finite number.
  double number_or(std::string_view key, double fallback);
  bool flag_or(std::string_view key, bool fallback);
  Activation activation(std::string_view key, std::string_view fallback);

  /// Keeps `message` unless there was an error before.
  void refuse(std::string message);
  bool ok() const { return !error_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  const Json& whole_;
  const Json* text_;
  Json defaults_;
  std::optional<Error> error_;
};

}  // namespace quern
