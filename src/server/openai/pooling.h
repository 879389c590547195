// PoolingCall: a request for vectors or scores that has been checked and turned into tokens, and its answer. Values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/errors.h"
#include "server/openai/generation.h"

namespace quern {

/// A text, or a pair of texts, of which the model makes a vector or a score.
struct PoolingInput {
  std::vector<int32_t> tokens;
  int32_t second_text = 0;  // first token of a pair's second text, where the model wants to know; else 0
};

struct PoolingCall {
  enum class Kind : uint8_t { embeddings, score, rerank };

  Kind kind = Kind::embeddings;
  std::string model;  // as the client called it
  /// For scores of a model that makes vectors: the first texts, one or as many as there are second ones, then those.
  std::vector<PoolingInput> inputs;
  size_t first_texts = 0;
  int64_t prompt_tokens = 0;
  int32_t priority = 0;
  std::vector<std::string> unknown_fields;
  std::string answer;                  // the whole of it, when the model is not needed
  std::optional<double> keep_alive_s;  // how long the model stays after the last request, from now on
  /// How the answer is written when that is not OpenAI's way; `arrived_us`: of the request.
  std::function<std::string(const PoolingCall&, const std::vector<std::vector<float>>& vectors, int64_t arrived_us)>
      form;

  // Of embeddings.
  bool base64 = false;
  int32_t dimensions = 0;
  bool normalize = true;

  // Of scores.
  bool raw_scores = false;             // as the model gives them, not between 0 and 1
  std::vector<std::string> documents;  // given back with the ranking, unless the client wants none
  size_t top_n = 0;                    // 0: all
};

Checked<PoolingCall> parse_embeddings(std::string_view body, const TextModel& model);
Checked<PoolingCall> read_embeddings(const Json& body, const TextModel& model);
Checked<PoolingCall> parse_score(std::string_view body, const TextModel& model);
Checked<PoolingCall> parse_rerank(std::string_view body, const TextModel& model);
Checked<PoolingCall> read_embeddings(Fields& fields, const TextModel& model);
Checked<PoolingCall> read_score(Fields& fields, const TextModel& model);
Checked<PoolingCall> read_rerank(Fields& fields, const TextModel& model);

/// The whole answer; `vectors` are those of the inputs. `id` and `created` go into answers that have such.
std::string pooling_answer(const PoolingCall& call, const std::vector<std::vector<float>>& vectors,
                           const PoolingOptions& options, const std::string& id, int64_t created);

/// The shortest text that reads back as the same float.
void append_floats(std::string& out, std::span<const float> values);

/// Why a model that was loaded for something else does not answer here.
ApiError wrong_task(const ServerOptions& options, std::string_view wanted);

}  // namespace quern
