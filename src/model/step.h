// Step: everything one forward pass reads, in device memory whose addresses never change. Thread: executor.
#pragma once

#include <cstdint>
#include <vector>

#include "model/spec.h"
#include "ops/attention.h"
#include "ops/exec.h"
#include "ops/row_state.h"
#include "tensor/tensor.h"

namespace quern {

/// What a block may branch on: sizes only.
struct StepShape {
  int tokens = 0;
  int segments = 0;
  int outputs = 0;  // tokens whose logits or hidden states are wanted

  bool operator==(const StepShape&) const = default;
};

struct StepInputs {
  Tensor tokens;      // [tokens] i32
  Segments segments;  // starts, rows, positions
  Tensor outputs;     // [outputs] i32: indices of query tokens, ascending
  Tensor types = {};  // [tokens] i32: 1 for the second text of a pair; only of models that are not causal
};

/// Pages of all groups: one pool, one table per group. Extent e of page p begins at (e * pages + p) * extent_bytes().
struct KvCache {
  std::byte* pool = nullptr;
  int64_t pages = 0;  // in the pool
  KvLayout layout;
  std::vector<Tensor> tables;  // per group: [rows, max pages of a row] i32
  Dtype dtype = Dtype::f16;
  std::byte* states = nullptr;  // of recurrent layers, row after row: layout.state_pages() pages each

  /// The pages of a layer; what is in them is for its mixer to say.
  PagedKv layer(int index) const {
    const KvLayout::Place& place = layout.layers[static_cast<size_t>(index)];
    PagedKv kv;
    const int64_t extent = layout.extent_bytes();
    kv.pool = pool + place.offset / extent * pages * extent;
    kv.page_bytes = extent;
    kv.layer_offset = place.offset % extent;
    kv.table = tables[static_cast<size_t>(place.group)];
    kv.page_tokens = layout.page_tokens;
    kv.dtype = dtype;
    return kv;
  }

  /// What a recurrent layer keeps of every row.
  RowState state(int layer) const {
    return {states, layout.state_pages() * layout.page_bytes, layout.layers[static_cast<size_t>(layer)].offset};
  }
};

/// Ropes of different frequencies that one model may have.
inline constexpr int max_ropes = 4;

struct Step {
  Exec& exec;
  StepShape shape;
  StepInputs inputs;
  const KvCache& kv;
  // The decoder fills these in.
  Tensor ropes[max_ropes] = {};  // sines and cosines of the step's positions
  Tensor hidden = {};            // [tokens, dim] f32: what the layers read and add to
  Tensor layer_inputs = {};      // [tokens, layers * dim of one] activations, or none
};

}  // namespace quern
