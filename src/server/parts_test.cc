// The parts of the server without a network: routes, keys, fields, metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

#include "server/access/keys.h"
#include "server/metrics/http.h"
#include "server/metrics/metrics.h"
#include "server/metrics/page.h"
#include "server/openai/errors.h"
#include "server/openai/fields.h"
#include "server/routes.h"

namespace quern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Routes, NormalizesPathsOnce) {
  EXPECT_EQ(path_of("/v1//models/?a=/b"), "/v1/models");
  EXPECT_EQ(path_of("http://host:1/v1/models"), "/v1/models");
  EXPECT_EQ(path_of("http://host"), "/");
  EXPECT_EQ(path_of("/v1/models/a%2Fb%252F%"), "/v1/models/a/b%2F%");
  EXPECT_EQ(model_in("/v1/models/a/b"), "a/b");
}

TEST(Routes, FindsNoRouteForOthers) {
  EXPECT_EQ(find_route("/v1"), nullptr);
  EXPECT_EQ(find_route("/v1/models/a/b")->endpoint, Endpoint::model);
  EXPECT_TRUE(find_route("/ping")->allows("POST"));
  EXPECT_FALSE(find_route("/v1/completions")->allows("DELETE"));
  EXPECT_FALSE(find_route("/v1/completions")->allows("HEAD"));
}

TEST(Keys, S28KnowsNamesOfThisMachine) {
  for (const char* host : {"localhost", "localhost:80", "127.0.0.1:1", "[::1]:2", "a.localhost:3", "10.0.0.1", ""})
    EXPECT_TRUE(is_local_host(host)) << host;
  for (const char* host : {"evil.example", "localhost.evil:80", "127.0.0.1.evil"})
    EXPECT_FALSE(is_local_host(host)) << host;
}

TEST(Errors, AlwaysHaveFourMembers) {
  EXPECT_EQ(error_body({400, "a \"b\"\n"}),
            R"({"error":{"message":"a \"b\"\n","type":"invalid_request_error","param":null,"code":null}})");
  EXPECT_EQ(error_body({400, "m", "c", "p"}),
            R"({"error":{"message":"m","type":"invalid_request_error","param":"p","code":"c"}})");
}

TEST(Fields, KeepsTheFirstError) {
  const Json object = Json::parse(R"({"a":"x","b":-1})").value();
  Fields fields(object, "o.");

  fields.integer("a", 0, 5);
  fields.integer("b", 0, 5);

  EXPECT_EQ(fields.error()->param, "o.a");
  EXPECT_EQ(fields.error()->code, "invalid_type");
}

TEST(Fields, NamesUnknownOnesAndTheNearest) {
  const Json object = Json::parse(R"({"temperature":1,"max_token":2,"x":null})").value();
  Fields fields(object);
  fields.number("temperature", 0, 2);
  fields.integer("max_tokens", 0, 9);

  EXPECT_THAT(fields.unknown(), ElementsAre("max_token", "x"));
  EXPECT_EQ(fields.nearest("max_token"), "max_tokens");
}

TEST(Fields, TakesWholeNumbersInAnySpelling) {
  const Json object = Json::parse(R"({"a":5.0,"b":5.5,"c":1e300})").value();

  EXPECT_EQ(Fields(object).integer("a", 0, 9), 5);
  Fields b(object);
  b.integer("b", 0, 9);
  EXPECT_EQ(b.error()->code, "invalid_type");
  Fields c(object);
  c.integer("c", 0, 9);
  EXPECT_EQ(c.error()->code, "integer_above_max_value");
}

TEST(Histogram, CountsUpToEachBound) {
  Histogram histogram({1, 2});

  for (const double value : {0.5, 1.0, 1.5, 9.0}) histogram.observe(value);

  EXPECT_EQ(histogram.up_to(0), 2);
  EXPECT_EQ(histogram.up_to(1), 3);
  EXPECT_EQ(histogram.count(), 4);
  EXPECT_EQ(histogram.sum(), 12.0);
}

std::string page_of(std::initializer_list<Metrics*> models) {
  HttpMetrics http;
  http.add_route("/x", "GET");
  http.add_route("/y", "POST");
  http.add_route("/health", "GET", false);
  MetricsPage page;
  for (Metrics* metrics : models) metrics->write(page, {}, 0);
  http.write(page);
  return page.text();
}

TEST(Metrics, HasEveryNameFromTheStart) {
  Metrics metrics("a\"b", 4096, 16, true);

  const std::string page = page_of({&metrics});

  EXPECT_THAT(page, HasSubstr("vllm:num_requests_running{model_name=\"a\\\"b\",engine=\"0\"} 0\n"));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("/health")));
  for (const char* name : {"vllm:num_requests_waiting",
                           "vllm:num_requests_waiting_by_reason",
                           "vllm:kv_cache_usage_perc",
                           "vllm:cache_config_info",
                           "vllm:lora_requests_info",
                           "vllm:engine_sleep_state",
                           "vllm:prefix_cache_queries_total",
                           "vllm:prefix_cache_hits_total",
                           "vllm:external_prefix_cache_queries_total",
                           "vllm:mm_cache_hits_total",
                           "vllm:prompt_tokens_total",
                           "vllm:generation_tokens_total",
                           "vllm:prompt_tokens_cached_total",
                           "vllm:prompt_tokens_by_source_total",
                           "vllm:num_preemptions_total",
                           "vllm:request_success_total",
                           "vllm:corrupted_requests_total",
                           "vllm:time_to_first_token_seconds_bucket",
                           "vllm:inter_token_latency_seconds_count",
                           "vllm:request_time_per_output_token_seconds_sum",
                           "vllm:e2e_request_latency_seconds_bucket",
                           "vllm:request_queue_time_seconds_count",
                           "vllm:request_inference_time_seconds_count",
                           "vllm:request_prefill_time_seconds_count",
                           "vllm:request_decode_time_seconds_count",
                           "vllm:request_prompt_tokens_count",
                           "vllm:request_generation_tokens_count",
                           "vllm:request_max_num_generation_tokens_count",
                           "vllm:request_params_max_tokens_count",
                           "vllm:request_prefill_kv_computed_tokens_count",
                           "vllm:request_params_n_count",
                           "vllm:iteration_tokens_total_count",
                           "vllm:spec_decode_num_drafts_total",
                           "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                           "vllm:tool_call_parser_invocations_total",
                           "http_requests_total",
                           "http_request_duration_seconds_count",
                           "http_request_size_bytes_sum",
                           "http_response_size_bytes_count",
                           "process_cpu_seconds_total",
                           "process_resident_memory_bytes",
                           "process_open_fds",
                           "process_start_time_seconds",
                           "vllm:gpu_cache_usage_perc",
                           "vllm:gpu_prefix_cache_hit_rate",
                           "vllm:gpu_prefix_cache_hits_total",
                           "vllm:gpu_prefix_cache_queries_total",
                           "vllm:time_per_output_token_seconds_count"}) {
    EXPECT_THAT(page, HasSubstr("\n" + std::string(name))) << name;
  }
}

TEST(Metrics, EveryFamilyIsOneBlockWithHelpAndType) {
  Metrics one("one", 4096, 16, true);
  Metrics two("two", 128, 16, true);
  std::istringstream lines(page_of({&one, &two}));
  std::set<std::string> families;
  std::string family;

  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family;
    } else if (!line.starts_with("# TYPE ")) {
      EXPECT_TRUE(line.starts_with(family)) << line << " in " << family;
    }
  }
}

TEST(Metrics, CountsStepsByTheirTokens) {
  Metrics metrics("m", 4096, 16, true);
  EngineStats stats;
  MetricsPage page;
  metrics.write(page, stats, 0);
  stats.prompt_tokens = 30;
  stats.generation_tokens = 10;
  stats.steps_by_tokens[0] = 3;
  stats.steps_by_tokens[4] = 1;

  metrics.write(page, stats, 0);
  metrics.write(page, stats, 0);

  EXPECT_EQ(metrics.iteration_tokens.count(), 4);
  EXPECT_EQ(metrics.iteration_tokens.up_to(0), 3);
  EXPECT_EQ(metrics.iteration_tokens.sum(), 40.0);
}

}  // namespace
}  // namespace quern
