#include "model/pooler.h"

#include <cstring>

#include "formats/half.h"
#include "ops/activate.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace quern {

Result<Pooler> Pooler::build(const DecoderSpec& spec, Weights& weights) {
  Pooler pooler;
  pooler.pooling_ = spec.pooler->pooling;
  pooler.dim_ = spec.dim;
  int dim = spec.dim;
  for (const DenseSpec& dense : spec.pooler->dense) {
    ASSIGN_OR_RETURN(const Matrix matrix, weights.matrix({{dense.name, dense.size}}, dim, dense.bias));
    pooler.layers_.push_back({matrix, dense.function});
    dim = dense.size;
  }
  if (!spec.pooler->head) return pooler;
  const HeadSpec& head = *spec.pooler->head;
  if (!head.dense.empty()) {
    ASSIGN_OR_RETURN(const Matrix matrix, weights.matrix({{head.dense, spec.dim}}, spec.dim, head.dense_bias));
    pooler.layers_.push_back({matrix, head.function});
  }
  ASSIGN_OR_RETURN(pooler.norm_, Norm::load(head.norm, spec.dim, spec.norm, weights));
  if (!head.tokens) {
    ASSIGN_OR_RETURN(pooler.scores_, weights.matrix({{head.output, head.labels}}, spec.dim, head.output_bias));
    return pooler;
  }
  const std::string table = spec.tied ? "model.embed_tokens.weight" : "lm_head.weight";
  for (const int32_t token : {head.tokens->first, head.tokens->second}) {
    ASSIGN_OR_RETURN(pooler.scores_.parts[pooler.scores_.count],
                     weights.some_rows(table, {spec.vocab, token, 1}, spec.dim));
    ++pooler.scores_.count;
  }
  pooler.scores_.rows = 2;
  pooler.scores_.cols = spec.dim;
  return pooler;
}

Tensor Pooler::apply(Step& step, Tensor vectors) const {
  Exec& exec = step.exec;
  for (size_t i = 0; i < layers_.size(); ++i) {
    Tensor made = layers_[i].apply(exec, vectors);
    if (i + 1 == layers_.size() && scores_.count == 0) return made;
    if (norm_) norm_.apply(exec, made);
    vectors = to_activations(exec, made);
  }
  const Tensor scores = exec.arena.tensor(Dtype::f32, vectors.dims[0], scores_.rows);
  linear_into(exec, scores, vectors, scores_, false);
  return scores;
}

/// In float, whatever activations are: these are few.
Tensor Pooler::Layer::apply(Exec& exec, Tensor vectors) const {
  const Tensor y = exec.arena.tensor(Dtype::f32, vectors.dims[0], matrix.rows);
  linear_into(exec, y, vectors, matrix, false);
  if (function == HeadSpec::Function::tanh) softcap(exec, y, 1.0F);
  if (function == HeadSpec::Function::gelu) {
    Exec in_floats = exec;
    in_floats.activations = Dtype::f32;
    activate(in_floats, y, Activation::gelu_erf);
  }
  return y;
}

float Pooler::value(const std::byte* vector, Dtype dtype, int64_t i) {
  if (dtype == Dtype::f32) {
    float number = 0.0F;
    std::memcpy(&number, vector + i * 4, sizeof number);
    return number;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, vector + i * 2, sizeof bits);
  return dtype == Dtype::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

}  // namespace quern
