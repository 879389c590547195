// Pooler: the end of a model that answers with a vector for each text, or with scores. Thread: executor.
#pragma once

#include <vector>

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
  /// Whether something is computed of the vectors.
  bool has_layers() const { return scores_.count > 0 || !layers_.empty(); }
  /// Values of one text: those of its vector, or its scores.
  int width() const { return scores_.count > 0 ? scores_.rows : layers_.empty() ? dim_ : layers_.back().matrix.rows; }

  /// The scores, or what the layers make of vectors: [texts, width] f32   vectors: [texts, dim] activations
  Tensor apply(Step& step, Tensor vectors) const;
  /// Value `i` of a vector that was copied to host memory.
  static float value(const std::byte* vector, Dtype dtype, int64_t i);

 private:
  /// A dense layer and a function of what it makes.
  struct Layer {
    Matrix matrix;
    HeadSpec::Function function = HeadSpec::Function::none;

    /// [texts, rows] f32
    Tensor apply(Exec& exec, Tensor vectors) const;
  };

  Pooling pooling_ = Pooling::last;
  int dim_ = 0;
  std::vector<Layer> layers_;
  Norm norm_;  // or none
  Matrix scores_;
};

}  // namespace quern
