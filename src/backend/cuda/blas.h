// Blas: NVIDIA's library for large matrix products, opened at run time. Thread: executor, or the one that captures.
#pragma once

#include <memory>

#include "backend/cuda/launch.h"
#include "tensor/dtype.h"

namespace quern::cuda {

/// y = x W^T (+ y).   x: [tokens, cols] of `type`   w: [rows, cols] of `type`   y: [tokens, rows] of `result`
/// Of 8-bit floats each product is multiplied with the scales of its token and its row.
struct Product {
  Dtype type = Dtype::bf16;    // f16, bf16 or f8
  Dtype result = Dtype::bf16;  // f16, bf16 or f32
  int32_t tokens = 0;
  int32_t rows = 0;
  int32_t cols = 0;
  int64_t x_stride = 0;  // elements between tokens
  int64_t y_stride = 0;
  bool accumulate = false;
  const float* x_scales = nullptr;  // [tokens], of f8
  const float* w_scales = nullptr;  // [rows], of f8
  const float* bias = nullptr;      // [rows], added; not by the library
};

class Blas {
 public:
  virtual ~Blas() = default;
  /// False, with nothing done, if the library cannot: of 8-bit floats it takes neither all sizes nor all GPUs.
  virtual bool multiply(const CudaQueue& queue, const Product& product, void* y, const void* x, const void* w) = 0;
};

/// Null where the library is not installed.
std::unique_ptr<Blas> open_blas();

/// Whether this build has kernels for the current GPU.
bool runs_kernels();
/// Whether those have instructions of warpgroups (sm_90a).
bool runs_warpgroups();

}  // namespace quern::cuda
