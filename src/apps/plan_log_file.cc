#include "apps/plan_log_file.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"

namespace quern {

Result<std::shared_ptr<PlanLog>> PlanLog::create(const std::string& path, const EngineOptions& options) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return file_error(path);
  auto log = std::make_shared<PlanLog>(file);
  log->write(fmt::format(
      R"({{"quern_plan_log":1,"max_num_seqs":{},"max_num_batched_tokens":{},"max_model_len":{},"pages":{}}})",
      options.max_num_seqs, options.max_num_batched_tokens, options.max_model_len, options.pages));
  return log;
}

void PlanLog::write(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), file_);
  std::fputc('\n', file_);
}

Result<PlanLogHead> parse_plan_log_head(std::string_view line) {
  const auto parsed = Json::parse(line);
  const Error wrong{"the first line is not the head of a plan log"};
  if (!parsed.ok() || parsed->integer("quern_plan_log") != 1) return wrong;
  const auto size = [&](const char* name, int64_t most) {
    const int64_t value = parsed->integer(name).value_or(0);
    return value <= most ? value : 0;
  };
  PlanLogHead head{static_cast<int32_t>(size("max_num_seqs", 4096)),
                   static_cast<int32_t>(size("max_num_batched_tokens", 1 << 20)),
                   static_cast<int32_t>(size("max_model_len", INT32_MAX)), size("pages", INT32_MAX)};
  if (head.max_num_seqs < 1 || head.max_num_batched_tokens < 1 || head.max_model_len < 1 || head.pages < 1)
    return wrong;
  return head;
}

}  // namespace quern
