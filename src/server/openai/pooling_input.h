// InputReader: the texts of requests for vectors and scores, as tokens; what these requests have in common. One call's
// thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/fields.h"
#include "server/openai/pooling.h"

namespace quern {

inline constexpr size_t max_pooling_inputs = 2048;

/// A refusal of the field `name`.
ApiError invalid_field(std::string_view name, std::string message, std::string code = "invalid_value");

/// The model, the priority and what is ignored or refused everywhere.
void read_pooling_fields(Fields& fields, const ServerOptions& options, PoolingCall& call);

class InputReader {
 public:
  /// Reads how long texts may be.
  InputReader(Fields& fields, const TextModel& model);

  Checked<PoolingInput> text(const std::string& text, std::string_view name) const;
  Checked<PoolingInput> ids(const Json::Array& list, const std::string& name) const;
  /// Two texts for a model that compares them.
  Checked<PoolingInput> pair(const std::string& first, const std::string& second, std::string_view name) const;
  /// Text of several pieces, special tokens in the trusted ones.
  Checked<PoolingInput> pieces(std::span<const TextPiece> pieces, std::string_view name) const;

 private:
  Checked<PoolingInput> cut(PoolingInput input, std::string_view name) const;
  Checked<PoolingInput> fitting(PoolingInput input, std::string_view name) const;

  const TextModel& model_;
  int32_t truncate_ = 0;  // 0: longer texts are refused
  bool add_special_ = true;
};

}  // namespace quern
