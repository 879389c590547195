// A logged run, read back and given to another executor, makes the same tokens.
#include "engine/plan_log.h"

#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "base/channel.h"
#include "engine/oracle_driver.h"

namespace quern {
namespace {

/// Runs some requests with every kind of output and constraint; the log of all that crossed the border.
std::vector<std::string> logged_run(const EngineOptions& options, const OracleModel& model) {
  std::vector<std::string> lines;
  Scheduler scheduler(options);
  OracleDevice device(model, options.groups, options.pages, options.max_num_seqs);
  const OracleConstraint constraint{model.vocab, -1};
  std::map<RequestId, std::vector<int32_t>> outputs;
  std::vector<std::shared_ptr<OracleSink>> sinks;
  for (uint64_t i = 1; i <= 12; ++i) {
    Request request;
    request.id = RequestId{i};
    for (int k = 0; k < 17; ++k) request.prompt.push_back(k % 5 + (k > 13 ? static_cast<int32_t>(i % 3) : 0));
    request.max_tokens = 9;
    request.sampling = {.temperature = 0.7F, .top_p = 0.9F, .top_k = 5, .logit_bias = {{3, -1.5F}}, .seed = ~i};
    request.sampling.bad_words = {{1, 2}, {3}};
    request.sampling.not_first = {static_cast<int32_t>(i)};
    if (i % 3 == 0) request.sampling.allowed = std::make_shared<const std::vector<uint32_t>>(1, ~0U);
    if (i % 3 == 1) request.sampling.prompt_logprobs = 2;
    if (i % 3 == 2) request.sampling.logprob_ids = {2, 4};
    request.sampling.tell_logits = i % 2 == 0;
    request.sampling.tell_processed = i % 4 < 2;
    if (i % 4 == 0) request.output = OutputKind::pooled;
    if (i % 4 == 1) request.mask = std::make_shared<OracleMask>();
    request.sink = sinks.emplace_back(std::make_shared<OracleSink>());
    scheduler.add(Arrival(std::move(request)));
  }
  std::map<RowId, std::optional<TokenMask::Words>> masks;
  while (!scheduler.idle()) {
    for (auto& query : scheduler.take_mask_queries()) {
      auto& output = outputs[query.request];
      output.insert(output.end(), query.tokens.begin(), query.tokens.end());
      scheduler.give_mask(query.request, constraint.mask(output));
    }
    const StepPlan plan = scheduler.plan(1);
    lines.push_back(plan_log_line(plan));
    masks.clear();
    for (const StepMasks& step : scheduler.take_masks()) {
      lines.push_back(plan_log_line(step));
      for (const RowMask& mask : step.rows) masks[mask.row] = mask.words;
    }
    device.submitted(plan);
    StepResult result = device.run(plan, masks);
    lines.push_back(plan_log_line(result));
    scheduler.commit(std::move(result), 1);
  }
  EXPECT_EQ(device.wrong(), "");
  return lines;
}

TEST(PlanLog, ReplaysToTheSameTokens) {
  EngineOptions options;
  options.groups = {{GroupSpec::Kind::full, 0, 4}, {GroupSpec::Kind::recurrent, 0, 8, 2}};
  options.pages = 60;
  options.max_num_seqs = 5;
  options.max_num_batched_tokens = 16;
  options.depth = 1;
  const OracleModel model{.vocab = 12};
  const std::vector<std::string> lines = logged_run(options, model);

  OracleDevice device(model, options.groups, options.pages, options.max_num_seqs);
  StepPlan plan;
  std::map<RowId, std::optional<TokenMask::Words>> masks;
  int results = 0;
  for (const std::string& line : lines) {
    Result<PlanLogEntry> entry = parse_plan_log_line(line);
    ASSERT_TRUE(entry.ok()) << entry.error().message << "\n" << line;
    if (auto* read = std::get_if<StepPlan>(&*entry)) {
      plan = std::move(*read);
      EXPECT_EQ(plan_log_line(plan), line);
      masks.clear();
    } else if (auto* step = std::get_if<StepMasks>(&*entry)) {
      for (RowMask& mask : step->rows) masks[mask.row] = std::move(mask.words);
    } else {
      device.submitted(plan);
      EXPECT_EQ(plan_log_line(device.run(plan, masks)), line);
      ++results;
    }
  }

  EXPECT_EQ(device.wrong(), "");
  EXPECT_GT(results, 5);
}

TEST(PlanLog, RefusesWhatNoEngineWrites) {
  const char* const bad[] = {
      "",
      "[]",
      "{\"step\":1}",
      R"({"plan":1,"starts":[],"pages":[],"copies":[]})",
      R"({"plan":1,"starts":[],"pages":[{"row":-1,"group":0,"index":0,"page":0}],"copies":[],"states":[],"slices":[]})",
      R"({"plan":1,"starts":[{"row":0}],"pages":[],"copies":[],"states":[],"slices":[]})",
      R"({"plan":1,"starts":[],"pages":[7],"copies":[],"states":[],"slices":[]})",
      R"({"plan":1,"starts":[],"pages":[],"copies":[],"states":[],"slices":[{"row":0,"begin":-1,"count":3,"drafts":[1],"samples":true,"masked":false,"finishes":false}]})",
      R"({"plan":1,"starts":[],"pages":[],"copies":[],"states":[],"slices":[{"row":0,"begin":4,"count":3,"drafts":[],"samples":true,"masked":false,"finishes":false,"score_begin":4,"score_end":8}]})",
      R"({"plan":1,"starts":[],"pages":[],"copies":[],"states":[{"row":0,"restores":1,"pages":[]}],"slices":[]})",
      R"({"masks":1,"rows":[{"row":0,"words":[-1]}]})",
      R"({"result":1,"device_us":0,"slices":[{"tokens":["a"],"vector":[],"error":""}]})",
  };
  for (const char* line : bad) EXPECT_FALSE(parse_plan_log_line(line).ok()) << line;
}

}  // namespace
}  // namespace quern
