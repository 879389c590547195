// Dtype: what one element of a tensor is.
#pragma once

#include <cstdint>

namespace quern {

enum class Dtype : uint8_t { f32, f16, bf16, i32, i16, i8, u8, f8 };  // f8: e4m3

constexpr int dtype_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::i32: return 4;
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::i16: return 2;
    case Dtype::i8:
    case Dtype::u8:
    case Dtype::f8: return 1;
  }
  return 0;
}

constexpr const char* dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return "float32";
    case Dtype::f16: return "float16";
    case Dtype::bf16: return "bfloat16";
    case Dtype::i32: return "int32";
    case Dtype::i16: return "int16";
    case Dtype::i8: return "int8";
    case Dtype::u8: return "uint8";
    case Dtype::f8: return "fp8_e4m3";
  }
  return "?";
}

}  // namespace quern
