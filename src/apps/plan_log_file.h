// PlanLog: a file of what crosses between engine and executor: a head that says for which sizes, then a line for each
// plan, mask and result. Thread: engine.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"

namespace quern {

/// The sizes that an executor needs to run the log again.
struct PlanLogHead {
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t max_model_len = 0;
  int64_t pages = 0;
};

class PlanLog {
 public:
  static Result<std::shared_ptr<PlanLog>> create(const std::string& path, const EngineOptions& options);
  explicit PlanLog(std::FILE* file) : file_(file) {}
  ~PlanLog() { std::fclose(file_); }
  PlanLog(const PlanLog&) = delete;
  PlanLog& operator=(const PlanLog&) = delete;

  void write(std::string_view line);

 private:
  std::FILE* file_;
};

Result<PlanLogHead> parse_plan_log_head(std::string_view line);

}  // namespace quern
