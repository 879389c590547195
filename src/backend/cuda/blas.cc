#include "backend/cuda/blas.h"

namespace quern::cuda {

std::unique_ptr<Blas> open_blas() { return nullptr; }

}  // namespace quern::cuda
