// copy_pages: whole KV pages from one place of the pool to another.
#pragma once

#include "ops/exec.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace quern {

/// Page to[i] becomes a copy of page from[i]; no page is both.   from, to: [copies] i32   page p is at pool + p *
/// page_bytes
void copy_pages(Exec& exec, std::byte* pool, int64_t page_bytes, Tensor from, Tensor to);

namespace kernels {
inline constinit Kernel<void(std::byte* pool, int64_t page_bytes, Tensor from, Tensor to)> copy_pages{"copy_pages"};
}  // namespace kernels

}  // namespace quern
