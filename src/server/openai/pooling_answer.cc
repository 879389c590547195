// Answers of /v1/embeddings, /v1/score and /v1/rerank.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <span>

#include "base/check.h"
#include "base/escapes.h"
#include "server/openai/pooling.h"

namespace quern {
namespace {

void append_model(std::string& out, const PoolingCall& call) {
  out += "\"model\":";
  append_json_string(out, call.model);
}

void append_tokens(std::string& out, const PoolingCall& call) {
  fmt::format_to(std::back_inserter(out), ",\"usage\":{{\"prompt_tokens\":{0},\"total_tokens\":{0}}}}}",
                 call.prompt_tokens);
}

std::string embeddings_answer(const PoolingCall& call, const std::vector<std::vector<float>>& vectors) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < vectors.size(); ++i) {
    if (i > 0) out += ',';
    fmt::format_to(std::back_inserter(out), "{{\"object\":\"embedding\",\"index\":{},\"embedding\":", i);
    if (call.base64) {
      out += '"';
      const std::vector<float>& vector = vectors[i];
      append_base64(out, {reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)});
      out += "\"}";
    } else {
      append_floats(out, vectors[i]);
      out += '}';
    }
  }
  out += "],";
  append_model(out, call);
  append_tokens(out, call);
  return out;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double product = 0;
  double squares_a = 0;
  double squares_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += double{a[i]} * b[i];
    squares_a += double{a[i]} * a[i];
    squares_b += double{b[i]} * b[i];
  }
  const double lengths = std::sqrt(squares_a * squares_b);
  return lengths > 0 ? product / lengths : 0.0;
}

/// What a model said of each pair, or how near its vectors of the two texts are.
std::vector<double> scores_of(const PoolingCall& call, const std::vector<std::vector<float>>& vectors,
                              const PoolingOptions& options) {
  std::vector<double> scores;
  for (size_t i = call.first_texts; i < vectors.size(); ++i) {
    if (call.first_texts > 0) {
      scores.push_back(cosine(vectors[call.first_texts == 1 ? 0 : i - call.first_texts], vectors[i]));
      continue;
    }
    double score = vectors[i][0];
    if (options.asks_yes_or_no) score -= vectors[i][1];
    scores.push_back(options.sigmoid && !call.raw_scores ? 1.0 / (1.0 + std::exp(-score)) : score);
  }
  return scores;
}

std::string score_answer(const PoolingCall& call, std::span<const double> scores, const std::string& id,
                         int64_t created) {
  std::string out = fmt::format("{{\"id\":\"score-{}\",\"object\":\"list\",\"created\":{},", id, created);
  append_model(out, call);
  out += ",\"data\":[";
  for (size_t i = 0; i < scores.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{{\"index\":{},\"object\":\"score\",\"score\":{}}}", i > 0 ? "," : "", i,
                   scores[i]);
  }
  out += ']';
  append_tokens(out, call);
  return out;
}

std::string rerank_answer(const PoolingCall& call, std::span<const double> scores, const std::string& id) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  if (call.top_n > 0) order.resize(std::min(order.size(), call.top_n));
  std::string out = fmt::format("{{\"id\":\"rerank-{}\",", id);
  append_model(out, call);
  out += ",\"results\":[";
  for (size_t place = 0; place < order.size(); ++place) {
    const size_t i = order[place];
    fmt::format_to(std::back_inserter(out), "{}{{\"index\":{},", place > 0 ? "," : "", i);
    if (!call.documents.empty()) {
      out += "\"document\":{\"text\":";
      append_json_string(out, call.documents[i]);
      out += "},";
    }
    fmt::format_to(std::back_inserter(out), "\"relevance_score\":{}}}", scores[i]);
  }
  out += ']';
  append_tokens(out, call);
  return out;
}

}  // namespace

std::string pooling_answer(const PoolingCall& call, const std::vector<std::vector<float>>& vectors,
                           const PoolingOptions& options, const std::string& id, int64_t created) {
  CHECK(vectors.size() == call.inputs.size());
  if (call.kind == PoolingCall::Kind::embeddings) return embeddings_answer(call, vectors);
  const std::vector<double> scores = scores_of(call, vectors, options);
  return call.kind == PoolingCall::Kind::score ? score_answer(call, scores, id, created)
                                               : rerank_answer(call, scores, id);
}

void append_floats(std::string& out, std::span<const float> values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    fmt::format_to(std::back_inserter(out), "{}", values[i]);
  }
  out += ']';
}

ApiError wrong_task(const ServerOptions& options, std::string_view wanted) {
  const std::string& name = options.model_names.front();
  const char* const made = options.output == OutputKind::tokens   ? "text"
                           : options.output == OutputKind::pooled ? "embeddings"
                                                                  : "scores of pairs of texts";
  std::string message = fmt::format("The model `{}` makes {}, so {} is not available.", name, made, wanted);
  if (options.output == OutputKind::tokens) {
    message += " Load an embedding model, or start the server with --task embed.";
  }
  return {400, std::move(message), "unsupported_model", "model"};
}

}  // namespace quern
