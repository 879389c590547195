#include "server/models/served_model.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace quern {
namespace {

size_t longest_token(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.size(); ++id) longest = std::max(longest, tokenizer.token_bytes(id).size());
  return longest;
}

TextModel text_model(ModelParts& parts) {
  TextModel text;
  text.longest_token_bytes = longest_token(*parts.tokenizer);
  text.options = std::move(parts.options);
  text.tokenizer = std::move(parts.tokenizer);
  text.chat_template = std::move(parts.chat_template);
  if (text.chat_template) text.calls = try_calls(*text.chat_template);
  return text;
}

TextModel brief_model(const TextModel& text) {
  TextModel brief = text;
  brief.template_limits = {.max_operations = 10'000,
                           .max_output_bytes = 64 << 10,
                           .max_depth = 100,
                           .max_time_us = 1'000,
                           .max_memory_bytes = 1 << 20};
  return brief;
}

}  // namespace

ServedModel::ServedModel(ModelParts parts, Metrics& figures)
    : metrics(figures),
      text(text_model(parts)),
      brief(brief_model(text)),
      constraints(text.tokenizer, text.vocab_size(), text.options.end_tokens),
      engine(std::move(parts.engine)) {}

void ServedModel::close() {
  constraints.stop();
  engine.reset();
}

double ServedModel::stalled_s(const EngineStats& stats) const {
  if (live_requests == 0 && stats.running + stats.waiting == 0) return 0;
  return seconds_since(std::max<int64_t>(stats.last_step_us, work_since_us));
}

}  // namespace quern
