// Steps of one token, operation after operation in one kernel. Such a step is as long as reading the weights takes, and
// kernels that follow each other lose a tenth to a half of it: the last blocks of one end alone, the first bytes of the
// next are a memory latency away. So operations of one token are not launched but kept, and as soon as anything else
// wants the stream, one kernel does all of them: its blocks wait for each other between operations, while the weights
// of the next product already come.
//
// Kept are rms_norm, linear and gated_linear over weights that stream, rope_and_write_kv with the attention behind it,
// and select_rows.
// Anything else ends the chain, and a chain of few products is launched one by one. Nothing is kept of a
// batch-invariant queue. Thread: that of the queue.
#pragma once

#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "backend/cuda/chain_records.h"
#include "ops/attention.h"
#include "ops/gated.h"
#include "ops/linear.h"
#include "ops/rope_and_write_kv.h"
#include "tensor/tensor.h"

namespace quern::cuda {

class Chain {
 public:
  /// Each keeps an operation, or returns false: then it has to be launched.
  bool keep_norm(const Queue& queue, Tensor y, Tensor x, Tensor weight, float eps);
  bool keep_linear(const Queue& queue, Tensor y, Tensor x, const Matrix& matrix, bool accumulate, std::byte* scratch);
  bool keep_gated_linear(const Queue& queue, Tensor y, Tensor gate_up, Activation activation, const Matrix& matrix,
                         bool accumulate, std::byte* scratch);
  bool keep_rope(const Queue& queue, Tensor q, Tensor k, Tensor v, const HeadTransform& transform, const PagedKv& kv,
                 const Segments& segments);
  bool keep_attention(const Queue& queue, Tensor out, Tensor q, const PagedKv& kv, const Segments& segments,
                      const AttentionParams& params, std::byte* scratch);

  bool keep_select(const Queue& queue, Tensor y, Tensor x, Tensor indices);

  /// Launches what is kept.
  void run();

 private:
  /// A record, and the shape that it has.
  struct Recorded {
    ChainRecord record;
    std::variant<std::monostate, ChainProduct, ChainAttention> shape;
    int x_bytes = 0;  // of shared memory, for activations
    int slot_bytes = 0;
  };
  struct Kept {
    std::function<void()> alone;     // launches it by itself
    std::vector<Recorded> recorded;  // nothing for what only the next operation can do
    bool done_by_next = false;
  };
  struct Norm {
    Tensor y, x, weight;
    float eps = 0.0F;
  };
  struct Rope {
    Tensor q, k, v;
    HeadTransform transform;
  };
  class Program;

  bool takes(const Queue& queue, Tensor x) const;
  bool record_products(Kept& kept, Tensor y, Tensor x, const Matrix& matrix, bool accumulate, ChainSource source,
                       Activation activation);
  void keep(const Queue& queue, Kept kept);

  std::vector<Kept> kept_;
  Norm norm_;  // the last one kept, if last_is_norm_
  Rope rope_;
  bool last_is_norm_ = false;
  bool last_is_rope_ = false;
  bool running_ = false;  // what is launched alone is not kept again
  Dtype activations_ = Dtype::bf16;
  Queue queue_;
};

inline Chain& chain_of(const Queue& queue) { return *native(queue).chain; }

}  // namespace quern::cuda
