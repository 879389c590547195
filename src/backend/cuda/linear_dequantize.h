// What large products need around the library's: weights as half floats, and results that begin as the bias.
#pragma once

#include "backend/cuda/launch.h"
#include "formats/weight.h"
#include "tensor/tensor.h"

namespace quern::cuda {

/// to[i] = row first + i of a packed weight, in the activations' type.   to: [count, cols]
void dequantize(const Queue& queue, std::byte* to, Dtype activations, const Weight& weight, int32_t first,
                int32_t count);

/// y[t] = bias, or y[t] += bias with `accumulate`.   y: [tokens, rows]   bias: [rows] f32
void begin_with_bias(const Queue& queue, Tensor y, Tensor bias, bool accumulate);

/// y = x W^T + bias in floats for a weight in any format and activations of any type: the reference on the GPU.
void plain_linear(const Queue& queue, Tensor y, Tensor x, const Weight& weight, const float* bias, bool accumulate);

}  // namespace quern::cuda
