// PoolerSpec: how a text becomes one vector, or scores, as data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace quern {

/// Which of a text's hidden states make its vector.
enum class Pooling : uint8_t {
  first,
  mean,
  last,
  largest,        // in each place
  weighted_mean,  // the first token counts once, the second twice ...
  mean_sqrt_len,  // the sum by the root of the number of tokens
};

/// Whether all tokens have a part in the vector.
constexpr bool takes_all(Pooling pooling) { return pooling != Pooling::first && pooling != Pooling::last; }

/// What is computed of the vector: a dense layer, a function, a norm, each if there is one, then scores.
struct HeadSpec {
  enum class Function : uint8_t { none, tanh, gelu };

  std::string dense;  // names of layers, without ".weight"
  bool dense_bias = false;
  Function function = Function::none;
  std::string norm;
  std::string output;
  bool output_bias = false;
  int labels = 0;
  /// The two scores are of a language model's answers yes and no.
  bool yes_or_no = false;
  /// These answers, where there is no output layer of their own.
  std::optional<std::pair<int32_t, int32_t>> tokens;

  bool operator==(const HeadSpec&) const = default;
};

/// A layer that every vector goes through (the Dense modules of sentence-transformers).
struct DenseSpec {
  std::string name;  // without ".weight"
  int size = 0;      // of the vector that it makes
  bool bias = false;
  HeadSpec::Function function = HeadSpec::Function::none;

  bool operator==(const DenseSpec&) const = default;
};

struct PoolerSpec {
  Pooling pooling = Pooling::last;
  std::optional<HeadSpec> head;
  std::vector<DenseSpec> dense = {};  // of vectors: one after the other

  /// Values of a vector, where hidden states have `dim`.
  int vector_size(int dim) const { return dense.empty() ? dim : dense.back().size; }

  bool operator==(const PoolerSpec&) const = default;
};

}  // namespace quern
