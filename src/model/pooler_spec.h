// PoolerSpec: how a text becomes one vector, or scores, as data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace quern {

/// Which of a text's hidden states make its vector.
enum class Pooling : uint8_t { first, mean, last };

/// What is computed of the vector: a dense layer with bias, a function, a norm, each if there is one, then scores.
struct HeadSpec {
  enum class Function : uint8_t { none, tanh, gelu };

  std::string dense;  // names of layers, without ".weight"
  Function function = Function::none;
  std::string norm;
  std::string output;
  bool output_bias = false;
  int labels = 0;
  /// Instead of an output layer: the embeddings of these two tokens; the score is how much better the second one
  /// follows.
  std::optional<std::pair<int32_t, int32_t>> tokens;

  bool operator==(const HeadSpec&) const = default;
};

struct PoolerSpec {
  Pooling pooling = Pooling::last;
  std::optional<HeadSpec> head;

  bool operator==(const PoolerSpec&) const = default;
};

}  // namespace quern
