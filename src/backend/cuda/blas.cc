// cuBLASLt behind Blas. Descriptors and the algorithm of each shape are kept; the mutex guards that list, because steps
// are captured on a thread of their own beside the executor.
#include "backend/cuda/blas.h"

#include <bit>
#include <cstdlib>
#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "tensor/device.h"

namespace quern::cuda {
namespace {

/// The library's functions.
struct Functions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Functions& f) {
  return find(library, "cublasLtCreate", f.create) && find(library, "cublasLtDestroy", f.destroy) &&
         find(library, "cublasLtMatmul", f.matmul) && find(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic) &&
         find(library, "cublasLtMatmulDescCreate", f.desc_create) &&
         find(library, "cublasLtMatmulDescDestroy", f.desc_destroy) &&
         find(library, "cublasLtMatmulDescSetAttribute", f.desc_set) &&
         find(library, "cublasLtMatrixLayoutCreate", f.layout_create) &&
         find(library, "cublasLtMatrixLayoutDestroy", f.layout_destroy) &&
         find(library, "cublasLtMatmulPreferenceCreate", f.preference_create) &&
         find(library, "cublasLtMatmulPreferenceDestroy", f.preference_destroy) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", f.preference_set);
}

/// Where the loader looks, which includes LD_LIBRARY_PATH, and then where the toolkit is usually installed.
void* open_library() {
  for (const char* folder : {"", "/usr/local/cuda/lib64/"}) {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
      void* const library = dlopen((std::string(folder) + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) return library;
    }
  }
  return nullptr;
}

void require(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceLost{fmt::format("cuBLASLt failed ({}): status {}", what, static_cast<int>(status))};
}

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return CUDA_R_32F;
    case Dtype::f16: return CUDA_R_16F;
    case Dtype::bf16: return CUDA_R_16BF;
    default: CHECK(false);
  }
}

/// What an algorithm is chosen for: the product and how its operands are aligned.
using Shape = std::tuple<Dtype, Dtype, int32_t, int32_t, int32_t, int64_t, int64_t, uint32_t>;

struct Chosen {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr;
  cublasLtMatrixLayout_t x = nullptr;
  cublasLtMatrixLayout_t y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

class CublasLt final : public Blas {
 public:
  CublasLt(const Functions& functions, cublasLtHandle_t handle) : f_(functions), handle_(handle) {}

  ~CublasLt() override {
    for (const auto& [shape, chosen] : chosen_) {
      f_.layout_destroy(chosen.w);
      f_.layout_destroy(chosen.x);
      f_.layout_destroy(chosen.y);
      f_.desc_destroy(chosen.desc);
    }
    f_.destroy(handle_);
  }

  void multiply(const CudaQueue& queue, const Product& product, void* y, const void* x, const void* w) override {
    const Chosen& chosen = choose(queue, product, y, x, w);
    const float one = 1.0F;
    const float beta = product.accumulate ? 1.0F : 0.0F;
    require(f_.matmul(handle_, chosen.desc, &one, w, chosen.w, x, chosen.x, &beta, y, chosen.y, y, chosen.y,
                      &chosen.algorithm, queue.workspace, static_cast<size_t>(queue.workspace_bytes), queue.stream),
            "product");
  }

 private:
  const Chosen& choose(const CudaQueue& queue, const Product& p, const void* y, const void* x, const void* w) {
    const auto bits = reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(w);
    const uint32_t alignment = 1U << std::min(std::countr_zero(bits | 256U), 8);
    const Shape shape{p.type, p.result, p.tokens, p.rows, p.cols, p.x_stride, p.y_stride, alignment};
    const std::lock_guard lock(mutex_);
    const auto it = chosen_.find(shape);
    if (it != chosen_.end()) return it->second;
    return chosen_.emplace(shape, describe(queue, p, alignment)).first->second;
  }

  /// The library's matrices are columns first: y^T [rows, tokens] = (w^T)^T [rows, cols] x^T [cols, tokens].
  Chosen describe(const CudaQueue& queue, const Product& p, uint32_t alignment) {
    Chosen made;
    require(f_.desc_create(&made.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    require(f_.desc_set(made.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed), "description");
    const auto cols = static_cast<uint64_t>(p.cols);
    const auto rows = static_cast<uint64_t>(p.rows);
    const auto tokens = static_cast<uint64_t>(p.tokens);
    require(f_.layout_create(&made.w, type_of(p.type), cols, rows, p.cols), "description");
    require(f_.layout_create(&made.x, type_of(p.type), cols, tokens, p.x_stride), "description");
    require(f_.layout_create(&made.y, type_of(p.result), rows, tokens, p.y_stride), "description");
    made.algorithm = best_algorithm(queue, made, alignment);
    return made;
  }

  cublasLtMatmulAlgo_t best_algorithm(const CudaQueue& queue, const Chosen& made, uint32_t alignment) {
    cublasLtMatmulPreference_t preference = nullptr;
    require(f_.preference_create(&preference), "preference");
    const auto workspace = static_cast<uint64_t>(queue.workspace_bytes);
    require(f_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace),
            "preference");
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      require(f_.preference_set(preference, operand, &alignment, sizeof alignment), "preference");
    }
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        f_.heuristic(handle_, made.desc, made.w, made.x, made.y, made.y, preference, 1, &result, &found);
    f_.preference_destroy(preference);
    require(status, "choice of an algorithm");
    if (found == 0) throw DeviceLost{"cuBLASLt has no algorithm for a product"};
    return result.algo;
  }

  Functions f_;
  cublasLtHandle_t handle_;
  std::mutex mutex_;
  std::map<Shape, Chosen> chosen_;
};

}  // namespace

std::unique_ptr<Blas> open_blas() {
  void* const library = open_library();
  Functions functions;
  cublasLtHandle_t handle = nullptr;
  if (library == nullptr || !find_all(library, functions)) return nullptr;
  if (functions.create(&handle) != CUBLAS_STATUS_SUCCESS) return nullptr;
  return std::make_unique<CublasLt>(functions, handle);
}

}  // namespace quern::cuda
