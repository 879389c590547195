// Tensor: a view of memory that somebody else owns. Copied by value; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tensor/dtype.h"

namespace quern {

struct Tensor {
  std::byte* data = nullptr;
  int64_t strides[4] = {0, 0, 0, 0};  // in elements
  int32_t dims[4] = {0, 0, 0, 0};
  Dtype dtype = Dtype::f32;
  uint8_t rank = 0;

  /// Dense views.
  static Tensor dense(std::byte* data, Dtype dtype, int32_t d0) { return {data, {1}, {d0}, dtype, 1}; }
  static Tensor dense(std::byte* data, Dtype dtype, int32_t d0, int32_t d1) {
    return {data, {d1, 1}, {d0, d1}, dtype, 2};
  }
  static Tensor dense(std::byte* data, Dtype dtype, int32_t d0, int32_t d1, int32_t d2) {
    return {data, {int64_t{d1} * d2, d2, 1}, {d0, d1, d2}, dtype, 3};
  }

  explicit operator bool() const { return data != nullptr; }
  int64_t elements() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= dims[i];
    return count;
  }

  template <typename T>
  T* as() const {
    DCHECK(sizeof(T) == static_cast<size_t>(dtype_bytes(dtype)));
    return reinterpret_cast<T*>(data);
  }
  /// Row `i` of a matrix.
  template <typename T>
  T* row(int64_t i) const {
    return as<T>() + i * strides[0];
  }

  /// Rows [begin, begin + count) of the first axis.
  Tensor rows(int32_t begin, int32_t count) const {
    Tensor view = *this;
    view.data += begin * strides[0] * dtype_bytes(dtype);
    view.dims[0] = count;
    return view;
  }
  /// Columns [begin, begin + count) of a matrix.
  Tensor columns(int32_t begin, int32_t count) const {
    Tensor view = *this;
    view.data += int64_t{begin} * dtype_bytes(dtype);
    view.dims[1] = count;
    return view;
  }
};

static_assert(sizeof(Tensor) <= 64);

}  // namespace quern
