#include "server/openai/pooling_input.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace quern {
namespace {

/// Keeps the special tokens around a text that is cut to `limit` tokens, the way tokenizers do.
std::vector<int32_t> truncated(const std::vector<int32_t>& framed, const std::vector<int32_t>& bare, size_t limit) {
  const size_t special = framed.size() - bare.size();
  const auto text = std::search(framed.begin(), framed.end(), bare.begin(), bare.end());
  if (text == framed.end()) return {framed.begin(), framed.begin() + static_cast<std::ptrdiff_t>(limit)};
  std::vector<int32_t> out(framed.begin(), text);
  const size_t kept = limit > special ? std::min(limit - special, bare.size()) : 0;
  out.insert(out.end(), bare.begin(), bare.begin() + static_cast<std::ptrdiff_t>(kept));
  out.insert(out.end(), text + static_cast<std::ptrdiff_t>(bare.size()), framed.end());
  return out;
}

}  // namespace

ApiError invalid_field(std::string_view name, std::string message, std::string code) {
  return {400, std::move(message), std::move(code), std::string(name)};
}

void read_pooling_fields(Fields& fields, const ServerOptions& options, PoolingCall& call) {
  constexpr int64_t least = std::numeric_limits<int32_t>::min();
  call.model = read_model(fields, options);
  call.priority =
      static_cast<int32_t>(fields.integer("priority", least, std::numeric_limits<int32_t>::max()).value_or(0));
  fields.ignore(Fields::Kind::string, {"user"});
  fields.refuse({"mm_processor_kwargs", "lora_path", "truncation_side"});
}

InputReader::InputReader(Fields& fields, const TextModel& model) : model_(model) {
  const int32_t most = model.options.max_model_len;
  const auto limit = fields.integer("truncate_prompt_tokens", -1, most);
  if (limit == 0) {
    fields.invalid("truncate_prompt_tokens", "integer_below_min_value",
                   "Invalid 'truncate_prompt_tokens': say -1 for the model's own limit, or a number of tokens.");
  }
  if (limit) truncate_ = *limit < 0 ? most : static_cast<int32_t>(*limit);
  add_special_ = fields.boolean("add_special_tokens").value_or(true);
}

Checked<PoolingInput> InputReader::text(const std::string& text, std::string_view name) const {
  if (truncate_ == 0) {
    if (auto error = check_text_size(model_, text.size(), {}, name)) return *error;
  }
  auto ids = model_.tokenizer->encode(text, {.add_special = add_special_});
  if (!ids.ok()) return invalid_field(name, ids.error().message);
  PoolingInput input{std::move(ids).value(), 0};
  if (truncate_ > 0 && input.tokens.size() > static_cast<size_t>(truncate_)) {
    auto bare = model_.tokenizer->encode(text, {.add_special = false});
    if (!bare.ok()) return invalid_field(name, bare.error().message);
    input.tokens = truncated(input.tokens, *bare, static_cast<size_t>(truncate_));
  }
  return fitting(std::move(input), name);
}

Checked<PoolingInput> InputReader::ids(const Json::Array& list, const std::string& name) const {
  PoolingInput input;
  if (auto error = read_token_ids(list, name, model_.vocab_size(), input.tokens)) return *error;
  return cut(std::move(input), name);
}

Checked<PoolingInput> InputReader::pair(const std::string& first, const std::string& second,
                                        std::string_view name) const {
  if (truncate_ == 0) {
    if (auto error = check_text_size(model_, first.size() + second.size(), {}, name)) return *error;
  }
  auto encoded = model_.tokenizer->encode_pair(first, second);
  if (!encoded.ok()) return invalid_field(name, encoded.error().message);
  const auto boundary = std::find(encoded->types.begin(), encoded->types.end(), 1);
  const bool typed = boundary != encoded->types.end();
  return cut({std::move(encoded->ids), typed ? static_cast<int32_t>(boundary - encoded->types.begin()) : 0}, name);
}

Checked<PoolingInput> InputReader::pieces(std::span<const TextPiece> pieces, std::string_view name) const {
  size_t bytes = 0;
  for (const TextPiece& piece : pieces) bytes += piece.text.size();
  if (auto error = check_text_size(model_, bytes, {}, name)) return *error;
  auto ids = model_.tokenizer->encode_pieces(pieces, false);
  if (!ids.ok()) return invalid_field(name, ids.error().message);
  return fitting({std::move(ids).value(), 0}, name);
}

Checked<PoolingInput> InputReader::cut(PoolingInput input, std::string_view name) const {
  if (truncate_ > 0 && input.tokens.size() > static_cast<size_t>(truncate_)) {
    input.tokens.resize(static_cast<size_t>(truncate_));
  }
  return fitting(std::move(input), name);
}

Checked<PoolingInput> InputReader::fitting(PoolingInput input, std::string_view name) const {
  if (input.tokens.empty()) return invalid_field(name, fmt::format("Invalid '{}': the text has no tokens.", name));
  const int32_t most = model_.options.max_model_len;
  if (input.tokens.size() <= static_cast<size_t>(most)) return input;
  return invalid_field(name,
                       fmt::format("This model's maximum context length is {} tokens. However, an input has {} tokens. "
                                   "Please shorten it, or say \"truncate_prompt_tokens\": -1.",
                                   most, input.tokens.size()),
                       "context_length_exceeded");
}

}  // namespace quern
