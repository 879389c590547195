// cuBLASLt behind Blas. Descriptors and the algorithm of each shape are kept; the mutex guards those lists, because
// steps are captured on a thread of their own beside the executor. What the library proposes for a kind of product is
// timed once, before the first product of that kind, and what was chosen is kept in a file for the next run.
#include "backend/cuda/blas.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/kept_file.h"
#include "tensor/device.h"

namespace quern::cuda {
namespace {

/// The library's functions.
struct Functions {
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) check = nullptr;
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
  return find(library, "cublasLtGetVersion", f.version) && find(library, "cublasLtCreate", f.create) &&
         find(library, "cublasLtDestroy", f.destroy) && find(library, "cublasLtMatmul", f.matmul) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic) &&
         find(library, "cublasLtMatmulAlgoCheck", f.check) &&
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
    case Dtype::f8: return CUDA_R_8F_E4M3;
    default: CHECK(false);
  }
}

/// What descriptors and algorithms are kept for: the product and how its operands are aligned.
using Shape = std::tuple<Dtype, Dtype, int32_t, int32_t, int32_t, int64_t, int64_t, uint32_t>;

Shape shape_of(const Product& p, int32_t tokens, uint32_t alignment) {
  return {p.type, p.result, tokens, p.rows, p.cols, p.x_stride, p.y_stride, alignment};
}

/// The next of 1, 1.5, 2, 3, 4, 6, 8, ...: products of so many tokens share an algorithm.
int32_t rounded_up(int32_t tokens) {
  int32_t power = 1;
  while (power < tokens) power *= 2;
  return power / 4 * 3 >= tokens ? power / 4 * 3 : power;
}

/// The key of a choice that is kept.
std::string name_of(const Shape& kind, int64_t workspace_bytes) {
  const auto& [type, result, tokens, rows, cols, x_stride, y_stride, alignment] = kind;
  return fmt::format("{}:{}:{}x{}x{}:{}:{}:{}:{}", dtype_name(type), dtype_name(result), tokens, rows, cols, x_stride,
                     y_stride, alignment, workspace_bytes);
}

/// Algorithms are words of the library, good for the version that made them.
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  return fmt::format("{:x}", fmt::join(std::begin(algorithm.data), std::end(algorithm.data), "."));
}

std::optional<cublasLtMatmulAlgo_t> algorithm_of(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (uint64_t& word : algorithm.data) {
    const auto [next, error] = std::from_chars(at, end, word, 16);
    if (error != std::errc()) return std::nullopt;
    at = next < end ? next + 1 : end;
  }
  return algorithm;
}

/// What a measured choice holds true for.
std::string identity_of(const Functions& functions) {
  int device = 0;
  int driver = 0;
  cudaDeviceProp properties{};
  cudaGetDevice(&device);
  cudaGetDeviceProperties(&properties, device);
  cudaDriverGetVersion(&driver);
  return fmt::format("{}, {} multiprocessors, driver {}, cuBLASLt {}", properties.name, properties.multiProcessorCount,
                     driver, functions.version());
}

struct Chosen {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr;
  cublasLtMatrixLayout_t x = nullptr;
  cublasLtMatrixLayout_t y = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool possible = true;
};

struct Operands {
  void* y;
  const void* x;
  const void* w;

  /// A power of two, at most 256.
  uint32_t alignment() const {
    const auto bits = reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(w);
    return 1U << std::countr_zero(bits | 256U);
  }
};

/// A stream, a workspace and a result beside those of the queue, so that products can be timed even while a step is
/// being captured.
class Rehearsal {
 public:
  Rehearsal(const CudaQueue& queue, int64_t result_bytes) : queue_(queue) {
    cudaThreadExchangeStreamCaptureMode(&mode_);
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(queue.stream, &capturing), "capture");
    if (capturing == cudaStreamCaptureStatusNone) check(cudaStreamSynchronize(queue.stream), "computing");
    check(cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking), "stream");
    check(cudaEventCreate(&begin_), "event");
    check(cudaEventCreate(&end_), "event");
    result_bytes_ = (result_bytes + 255) / 256 * 256;
    if (cudaMalloc(&memory_, static_cast<size_t>(queue.workspace_bytes + result_bytes_ + cache_bytes)) != cudaSuccess) {
      cudaGetLastError();
      memory_ = nullptr;
    }
    queue_.workspace = static_cast<std::byte*>(memory_);
  }
  ~Rehearsal() {
    cudaFree(memory_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(queue_.stream);
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  bool possible() const { return memory_ != nullptr; }
  const CudaQueue& queue() const { return queue_; }
  void* y() const { return queue_.workspace + queue_.workspace_bytes; }

  /// Weights come from memory when a model runs, so nothing of them stays in the GPU's cache from one run to the next.
  void begin() const {
    check(cudaMemsetAsync(static_cast<std::byte*>(y()) + result_bytes_, 0, cache_bytes, queue_.stream), "memory");
    check(cudaEventRecord(begin_, queue_.stream), "event");
  }
  float end_ms() const {
    check(cudaEventRecord(end_, queue_.stream), "event");
    check(cudaEventSynchronize(end_), "product");
    float ms = 0.0F;
    check(cudaEventElapsedTime(&ms, begin_, end_), "event");
    return ms;
  }

 private:
  static constexpr int64_t cache_bytes = int64_t{96} << 20;  // more than a GPU's cache holds

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the one before
  CudaQueue queue_;
  int64_t result_bytes_ = 0;
  void* memory_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

constexpr int proposals = 8;
constexpr int runs = 3;
constexpr size_t most_shapes = 4096;  // then the list begins anew

class CublasLt final : public Blas {
 public:
  CublasLt(const Functions& functions, cublasLtHandle_t handle)
      : f_(functions), handle_(handle), kept_(cache_folder(), "products", identity_of(functions)) {}

  ~CublasLt() override {
    forget();
    f_.destroy(handle_);
  }

  bool multiply(const CudaQueue& queue, const Product& product, void* y, const void* x, const void* w) override {
    const Operands operands{y, x, w};
    const std::lock_guard lock(mutex_);
    const Chosen& chosen = choose(queue, product, operands);
    if (!chosen.possible) return false;
    if (product.type == Dtype::f8) require(point_to_scales(chosen.desc, product), "scales");
    require(run(queue, chosen, operands, product.accumulate), "product");
    return true;
  }

 private:
  cublasStatus_t run(const CudaQueue& queue, const Chosen& chosen, const Operands& operands, bool accumulate) {
    const float one = 1.0F;
    const float beta = accumulate ? 1.0F : 0.0F;
    return f_.matmul(handle_, chosen.desc, &one, operands.w, chosen.w, operands.x, chosen.x, &beta, operands.y,
                     chosen.y, operands.y, chosen.y, &chosen.algorithm, queue.workspace,
                     static_cast<size_t>(queue.workspace_bytes), queue.stream);
  }

  const Chosen& choose(const CudaQueue& queue, const Product& p, const Operands& operands) {
    const uint32_t alignment = operands.alignment();
    const Shape shape = shape_of(p, p.tokens, alignment);
    if (const auto it = chosen_.find(shape); it != chosen_.end()) return it->second;
    if (chosen_.size() >= most_shapes) forget();
    Chosen made = describe(p);
    if (!made.possible) return chosen_.emplace(shape, made).first->second;
    const Shape kind = shape_of(p, rounded_up(p.tokens), alignment);
    if (const auto known = known_algorithm(kind, queue.workspace_bytes)) {
      made.algorithm = *known;
      cublasLtMatmulHeuristicResult_t result{};
      if (f_.check(handle_, made.desc, made.w, made.x, made.y, made.y, &made.algorithm, &result) ==
              CUBLAS_STATUS_SUCCESS &&
          result.workspaceSize <= static_cast<size_t>(queue.workspace_bytes)) {
        return chosen_.emplace(shape, made).first->second;
      }
    }
    const auto proposed = propose(queue, made, alignment);
    made.possible = !proposed.empty();
    if (!made.possible && p.type == Dtype::f8) return chosen_.emplace(shape, made).first->second;
    if (!made.possible) throw DeviceLost{"cuBLASLt has no algorithm for a product"};
    made.algorithm = fastest(queue, p, made, operands, proposed);
    best_.insert_or_assign(kind, made.algorithm);
    kept_.keep(name_of(kind, queue.workspace_bytes), text_of(made.algorithm));
    return chosen_.emplace(shape, made).first->second;
  }

  /// Of this run, or of an earlier one.
  std::optional<cublasLtMatmulAlgo_t> known_algorithm(const Shape& kind, int64_t workspace_bytes) const {
    if (const auto it = best_.find(kind); it != best_.end()) return it->second;
    const std::string* const kept = kept_.find(name_of(kind, workspace_bytes));
    return kept == nullptr ? std::nullopt : algorithm_of(*kept);
  }

  void destroy(const Chosen& chosen) {
    f_.layout_destroy(chosen.w);
    f_.layout_destroy(chosen.x);
    f_.layout_destroy(chosen.y);
    f_.desc_destroy(chosen.desc);
  }
  void forget() {
    for (const auto& [shape, chosen] : chosen_) destroy(chosen);
    chosen_.clear();
  }

  /// The library's matrices are columns first: y^T [rows, tokens] = (w^T)^T [rows, cols] x^T [cols, tokens].
  Chosen describe(const Product& p) {
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
    if (p.type == Dtype::f8) {
      made.possible = p.rows % 16 == 0 && p.cols % 16 == 0 && p.y_stride * dtype_bytes(p.result) % 16 == 0 &&
                      take_scales(made.desc) && point_to_scales(made.desc, p) == CUBLAS_STATUS_SUCCESS;
    }
    return made;
  }

  /// A scale for every row and token; libraries before 12.9 do not know of such.
  bool take_scales(cublasLtMatmulDesc_t desc) {
    const cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const int8_t fast = 1;
    return f_.desc_set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode) == CUBLAS_STATUS_SUCCESS &&
           f_.desc_set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode) == CUBLAS_STATUS_SUCCESS &&
           f_.desc_set(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast) == CUBLAS_STATUS_SUCCESS;
  }
  cublasStatus_t point_to_scales(cublasLtMatmulDesc_t desc, const Product& p) {
    const cublasStatus_t status =
        f_.desc_set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p.w_scales, sizeof p.w_scales);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return f_.desc_set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p.x_scales, sizeof p.x_scales);
  }

  /// The likely best first; none if the library cannot.
  std::vector<cublasLtMatmulAlgo_t> propose(const CudaQueue& queue, const Chosen& made, uint32_t alignment) {
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
    std::array<cublasLtMatmulHeuristicResult_t, proposals> results{};
    int found = 0;
    const cublasStatus_t status =
        f_.heuristic(handle_, made.desc, made.w, made.x, made.y, made.y, preference, proposals, results.data(), &found);
    f_.preference_destroy(preference);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) require(status, "choice of an algorithm");
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < found; ++i) algorithms.push_back(results[static_cast<size_t>(i)].algo);
    return algorithms;
  }

  /// Runs every proposal a few times; without memory for that the first one is taken.
  cublasLtMatmulAlgo_t fastest(const CudaQueue& queue, const Product& p, Chosen made, Operands operands,
                               const std::vector<cublasLtMatmulAlgo_t>& proposed) {
    cublasLtMatmulAlgo_t best = proposed.front();
    if (proposed.size() == 1) return best;
    const Rehearsal rehearsal(queue, p.tokens * p.y_stride * dtype_bytes(p.result));
    if (!rehearsal.possible()) return best;
    operands.y = rehearsal.y();
    float least_ms = std::numeric_limits<float>::max();
    for (const cublasLtMatmulAlgo_t& algorithm : proposed) {
      made.algorithm = algorithm;
      if (run(rehearsal.queue(), made, operands, p.accumulate) != CUBLAS_STATUS_SUCCESS) continue;  // also loads it
      float ms = 0.0F;
      for (int i = 0; i < runs; ++i) {
        rehearsal.begin();
        require(run(rehearsal.queue(), made, operands, p.accumulate), "product");
        ms += rehearsal.end_ms();
      }
      if (ms < 0.98F * least_ms) {
        least_ms = ms;
        best = algorithm;
      }
    }
    return best;
  }

  Functions f_;
  cublasLtHandle_t handle_;
  std::mutex mutex_;
  std::map<Shape, Chosen> chosen_;
  std::map<Shape, cublasLtMatmulAlgo_t> best_;
  KeptFile kept_;
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
