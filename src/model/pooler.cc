#include "model/pooler.h"

#include <cstring>

#include "formats/half.h"
#include "ops/linear.h"

namespace quern {

Result<Pooler> Pooler::build(const DecoderSpec& spec, Weights& weights) {
  Pooler pooler;
  pooler.pooling_ = spec.pooler->pooling;
  pooler.dim_ = spec.dim;
  pooler.norm_eps_ = spec.norm.eps;
  if (!spec.pooler->head) return pooler;
  const HeadSpec& head = *spec.pooler->head;
  pooler.function_ = head.function;
  if (!head.dense.empty()) {
    ASSIGN_OR_RETURN(pooler.dense_, weights.matrix({{head.dense, spec.dim}}, spec.dim, true));
  }
  if (!head.norm.empty()) {
    ASSIGN_OR_RETURN(pooler.norm_, weights.vector(head.norm + ".weight", spec.dim, 0.0F));
  }
  if (!head.tokens) {
    ASSIGN_OR_RETURN(pooler.scores_, weights.matrix({{head.output, head.labels}}, spec.dim, head.output_bias));
    return pooler;
  }
  for (const int32_t token : {head.tokens->first, head.tokens->second}) {
    ASSIGN_OR_RETURN(pooler.scores_.parts[pooler.scores_.count], weights.slice({.name = "model.embed_tokens.weight",
                                                                                .shape = {spec.vocab, spec.dim},
                                                                                .first_row = token,
                                                                                .rows = 1,
                                                                                .cols = spec.dim}));
    ++pooler.scores_.count;
  }
  pooler.scores_.rows = 2;
  pooler.scores_.cols = spec.dim;
  return pooler;
}

Tensor Pooler::scores(Step& step, Tensor vectors) const {
  Exec& exec = step.exec;
  const Tensor scores = exec.arena.tensor(Dtype::f32, vectors.dims[0], scores_.rows);
  linear_into(exec, scores, vectors, scores_, false);
  return scores;
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
