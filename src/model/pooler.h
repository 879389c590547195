// Pooler: the end of a model that answers with a vector for each text, or with scores. Thread: executor.
#pragma once

#include "base/result.h"
#include "model/norm.h"
#include "model/pooler_spec.h"
#include "model/spec.h"
#include "model/step.h"
#include "model/weights.h"

namespace quern {

class Pooler {
 public:
  /// The spec has a pooler.
  static Result<Pooler> build(const DecoderSpec& spec, Weights& weights);

  Pooling pooling() const { return pooling_; }
  bool has_head() const { return scores_.count > 0; }
  /// Values of one text: those of its vector, or its scores.
  int width() const { return has_head() ? scores_.rows : dim_; }

  /// [texts, width] f32   vectors: [texts, dim] activations
  Tensor scores(Step& step, Tensor vectors) const;
  /// Value `i` of a vector that was copied to host memory.
  static float value(const std::byte* vector, Dtype dtype, int64_t i);

 private:
  Tensor transformed(Exec& exec, Tensor vectors) const;

  Pooling pooling_ = Pooling::last;
  int dim_ = 0;
  HeadSpec::Function function_ = HeadSpec::Function::none;
  Matrix dense_;  // or none
  Norm norm_;     // or none
  Matrix scores_;
};

}  // namespace quern
