// Arena: a stack of activations over memory that somebody else owns. Same shapes in, same addresses out. Thread:
// executor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tensor/tensor.h"

namespace quern {

class Arena {
 public:
  Arena(std::byte* memory, int64_t bytes) : memory_(memory), bytes_(bytes) {}

  std::byte* take(int64_t bytes) {
    const int64_t begin = used_;
    used_ += (bytes + 63) / 64 * 64;
    if (used_ > peak_) peak_ = used_;
    CHECK(used_ <= bytes_);
    return memory_ + begin;
  }
  Tensor tensor(Dtype dtype, int32_t d0) { return Tensor::dense(take(int64_t{d0} * dtype_bytes(dtype)), dtype, d0); }
  Tensor tensor(Dtype dtype, int32_t d0, int32_t d1) {
    return Tensor::dense(take(int64_t{d0} * d1 * dtype_bytes(dtype)), dtype, d0, d1);
  }

  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }
  int64_t size() const { return bytes_; }

  /// Gives back on leaving what was taken since it was made.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.used_) {}
    ~Scope() { arena_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    int64_t mark_;
  };

 private:
  std::byte* memory_;
  int64_t bytes_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

}  // namespace quern
