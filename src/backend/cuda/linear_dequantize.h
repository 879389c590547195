// What large products need around the library's: weights as half floats, and results that begin as the bias.
#pragma once

#include "backend/cuda/launch.h"
#include "formats/weight.h"
#include "tensor/tensor.h"

namespace quern::cuda {

/// to[i] = row first + i of a packed weight, times its scale if there are any, in the activations' type.
/// to: [count, cols]   scales: of all rows
void dequantize(const Queue& queue, std::byte* to, Dtype activations, const Weight& weight, const float* scales,
                int32_t first, int32_t count);

/// The same of whole weights that lie `step` bytes apart, without scales, to where `to_step` bytes are between them.
void dequantize_all(const Queue& queue, std::byte* to, Dtype activations, const Weight& first, int64_t step,
                    int32_t weights, int64_t to_step);

/// y[t] = bias, or y[t] += bias with `accumulate`.   y: [tokens, rows]   bias: [rows] f32
void begin_with_bias(const Queue& queue, Tensor y, Tensor bias, bool accumulate);

/// What a product's rows are multiplied with, and what is added then; either may be null.
struct RowFactors {
  const float* scale = nullptr;
  const float* bias = nullptr;
};

/// y = scale * (x W^T) + bias in floats for a weight in any format and activations of any type: the reference on the
/// GPU.
void plain_linear(const Queue& queue, Tensor y, Tensor x, const Weight& weight, RowFactors factors, bool accumulate);

}  // namespace quern::cuda
