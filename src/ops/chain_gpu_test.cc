// Operations of one token in a row, which a GPU may do in one kernel (backend/cuda/chain.h), against the same
// operations one by one.
#include <cmath>
#include <gtest/gtest.h>

#include "ops/gated_linear.h"
#include "ops/gpu_testing.h"
#include "ops/linear_testing.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rope_and_write_kv.h"
#include "ops/select.h"

namespace quern::testing {
namespace {

/// A layer and what it is computed with.
struct Layer {
  const char* name;
  FormatId format;
  FormatId value_format;  // of values and of the last matrix
  Dtype activations = Dtype::bf16;
  Dtype pages = Dtype::bf16;
  int32_t dim = 512, hidden = 1024;
  int32_t heads = 8, kv_heads = 2, head_dim = 64;
  int32_t rope_dims = 64;
  bool head_norms = false, interleaved = false, scales = false, biases = false, sinks = false;
  float softcap = 0.0F;
  int32_t window = 0;
  Activation activation = Activation::silu;
};

const Layer layers[] = {
    {"Bf16", FormatId::bf16, FormatId::bf16},
    {"Half", FormatId::f16, FormatId::f16, Dtype::f16, Dtype::f16, 528, 1040, 6, 2, 128, 128, true, false, false, true},
    {"F8", FormatId::f8, FormatId::f8, Dtype::bf16, Dtype::f8, 576, 2112, 16, 2, 128, 128, true, false, true},
    {"F8Half", FormatId::f8, FormatId::f8, Dtype::f16, Dtype::f8, 512, 1024, 14, 2, 64, 32, false, true, true, true},
    {"Q4_0", FormatId::q4_0, FormatId::q4_0, Dtype::bf16, Dtype::bf16, 512, 1504, 8, 8, 64, 64},
    {"Q4_1", FormatId::q4_1, FormatId::q8_0, Dtype::f16, Dtype::f16, 544, 1024, 4, 1, 256, 64, false, false, false,
     false, true},
    {"Q5_0", FormatId::q5_0, FormatId::q5_0, Dtype::bf16, Dtype::f8, 512, 1024, 5, 1, 128, 128, true, true},
    {"Q8_0", FormatId::q8_0, FormatId::q4_0, Dtype::bf16, Dtype::bf16, 1024, 4032, 8, 2, 64, 64, false, false, false,
     true, false, 30.0F, 100, Activation::gelu_tanh},
    {"Q4_K", FormatId::q4_k, FormatId::q6_k, Dtype::bf16, Dtype::bf16, 768, 1280, 12, 4, 64, 64},
    {"Q5_K", FormatId::q5_k, FormatId::q6_k, Dtype::f16, Dtype::f16, 512, 4352, 8, 2, 64, 0, true, false, false, false,
     true},
    {"LongRows", FormatId::bf16, FormatId::bf16, Dtype::bf16, Dtype::bf16, 2304, 9216, 8, 2, 128, 128},
    {"ManyRows", FormatId::q4_0, FormatId::q4_0, Dtype::bf16, Dtype::bf16, 256, 8000, 4, 2, 64, 64},
};

class ChainGpu : public OnGpu, public ::testing::WithParamInterface<Layer> {};

constexpr int32_t page_tokens = 32;
constexpr int32_t pages = 128;

struct Weights {
  std::vector<RandomWeight> parts;
  std::vector<float> numbers;
  Matrix matrix;

  Weights(const Layer& layer, std::initializer_list<std::pair<FormatId, int32_t>> rows, int32_t cols, uint32_t seed) {
    for (const auto& [format, count] : rows) parts.push_back(random_weight(format, count, cols, seed++));
    for (const RandomWeight& part : parts) {
      matrix.parts[matrix.count++] = part.weight;
      matrix.rows += part.weight.rows;
      matrix.cols = cols;
    }
    const float size = 1.0F / std::sqrt(static_cast<float>(cols));
    numbers = random_floats(static_cast<size_t>(2 * matrix.rows), seed);
    for (int32_t row = 0; row < matrix.rows; ++row) {
      auto& scale = numbers[static_cast<size_t>(matrix.rows + row)];
      scale = size * (1.0F + 0.1F * std::fabs(scale));
    }
    if (layer.biases) matrix.bias = view(0);
    matrix.scale = view(matrix.rows);
  }
  Tensor view(int32_t first) {
    return Tensor::dense(reinterpret_cast<std::byte*>(numbers.data() + first), Dtype::f32, matrix.rows);
  }
};

/// What a layer reads, and what it leaves.
class Work {
 public:
  Work(const Layer& layer, int32_t position)
      : layer_(layer),
        q_(layer.heads * layer.head_dim),
        kv_(layer.kv_heads * layer.head_dim),
        qkv_(layer, {{layer.format, q_}, {layer.format, kv_}, {layer.value_format, kv_}}, layer.dim, 10),
        out_(layer, {{layer.format, layer.dim}}, q_, 20),
        up_(layer, {{layer.format, layer.hidden}, {layer.format, layer.hidden}}, layer.dim, 30),
        down_(layer, {{layer.value_format, layer.dim}}, layer.hidden, 40),
        head_(layer, {{layer.format, 1000}}, layer.dim, 50),
        norm_(random_floats(static_cast<size_t>(layer.dim), 60)),
        head_norms_(random_floats(static_cast<size_t>(2 * layer.head_dim), 61)),
        sinks_(random_floats(static_cast<size_t>(layer.heads), 62)),
        start_(random_floats(static_cast<size_t>(layer.dim), 63)),
        key_scales_(static_cast<size_t>(layer.kv_heads), 0.02F),
        positions_{position} {
    for (int32_t i = 0; i < pages; ++i) table_.push_back((i * 37 + 11) % pages);
    for (int32_t i = 0; i < layer.rope_dims / 2; ++i) inverse_.push_back(1.0F / static_cast<float>(1 + i));
    const int64_t bytes = int64_t{2} * page_tokens * kv_ * dtype_bytes(layer.pages);
    FloatMatrix keys = FloatMatrix::random(layer.activations, 1, pages * 2 * page_tokens * kv_, 0, 64);
    memory_.assign(static_cast<size_t>(pages * bytes), std::byte{0x21});
    if (layer.pages != Dtype::f8) std::memcpy(memory_.data(), keys.tensor().data, memory_.size());
    for (size_t i = 0; layer.pages == Dtype::f8 && i < memory_.size(); ++i)
      memory_[i] = std::byte(static_cast<uint32_t>(i) * 2654435761U >> 26);
  }

  /// The residual stream and the scores it ends in, then the pages.
  std::vector<float> run(bool in_a_chain) {
    TestDevice device(1, int64_t{64} << 20);
    Exec exec = device.exec();
    exec.activations = layer_.activations;
    std::vector<std::byte> memory = memory_;
    PagedKv kv;
    kv.pool = memory.data();
    kv.page_bytes = int64_t{2} * page_tokens * kv_ * dtype_bytes(layer_.pages);
    kv.table = Tensor::dense(reinterpret_cast<std::byte*>(table_.data()), Dtype::i32, 1, pages);
    kv.page_tokens = page_tokens;
    kv.heads = layer_.kv_heads;
    kv.head_dim = layer_.head_dim;
    kv.dtype = layer_.pages;
    if (layer_.pages == Dtype::f8) kv.k_scale = kv.v_scale = quern::view(key_scales_);
    const Segments segments{quern::view(starts_), quern::view(rows_), quern::view(positions_)};
    const Tensor x = exec.arena.tensor(Dtype::f32, 1, layer_.dim);
    std::memcpy(x.data, start_.data(), start_.size() * 4);
    HeadTransform transform;
    if (layer_.head_norms) {
      const Tensor both = quern::view(head_norms_);
      transform.q_norm = both;
      transform.q_norm.dims[0] = transform.k_norm.dims[0] = layer_.head_dim;
      transform = {Tensor::dense(both.data, Dtype::f32, layer_.head_dim),
                   Tensor::dense(both.data + layer_.head_dim * 4, Dtype::f32, layer_.head_dim),
                   1e-6F,
                   {},
                   false};
    }
    if (layer_.rope_dims > 0) transform.table = rope_table(exec, segments.positions, quern::view(inverse_), 1.0F);
    transform.interleaved = layer_.interleaved;
    AttentionParams params{layer_.heads, 1.0F / std::sqrt(static_cast<float>(layer_.head_dim)), layer_.softcap,
                           layer_.window, true};
    if (layer_.sinks) params.sinks = quern::view(sinks_);
    const Tensor first = quern::view(starts_);
    const Tensor index = Tensor::dense(first.data, Dtype::i32, 1);
    test_gpu()->wait();

    if (in_a_chain) exec.trace = nullptr;
    const Tensor normed = rms_norm(exec, x, quern::view(norm_), 1e-5F);
    const Tensor qkv = linear(exec, normed, qkv_.matrix);
    const Tensor q = qkv.columns(0, q_);
    rope_and_write_kv(exec, q, qkv.columns(q_, kv_), qkv.columns(q_ + kv_, kv_), transform, kv, segments);
    linear_into(exec, x, attention(exec, q, kv, segments, params), out_.matrix, true);
    const Tensor again = rms_norm(exec, x, quern::view(norm_), 1e-5F);
    gated_linear_into(exec, x, linear(exec, again, up_.matrix), layer_.activation, down_.matrix, true);
    const Tensor last = rms_norm(exec, select_rows(exec, x, index), quern::view(norm_), 1e-5F);
    const Tensor scores = exec.arena.tensor(Dtype::f32, 1, 1000);
    linear_into(exec, scores, last, head_.matrix, false);
    test_gpu()->wait();

    std::vector<float> left;
    const auto add = [&](const Tensor& row) {
      for (int32_t i = 0; i < row.dims[1]; ++i) left.push_back(static_cast<float>(float_at(row, 0, i)));
    };
    add(x);
    add(scores);
    add(normed);
    add(last);
    for (size_t i = 0; i < memory.size(); ++i) changed_ += memory[i] != memory_[i] ? 1 : 0;
    return left;
  }
  int64_t changed() const { return changed_; }

 private:
  const Layer& layer_;
  int32_t q_;
  int32_t kv_;
  Weights qkv_, out_, up_, down_, head_;
  std::vector<float> norm_, head_norms_, sinks_, start_, key_scales_, inverse_;
  std::vector<int32_t> starts_{0, 1};
  std::vector<int32_t> rows_{0};
  std::vector<int32_t> positions_;
  std::vector<int32_t> table_;
  std::vector<std::byte> memory_;
  int64_t changed_ = 0;
};

TEST_P(ChainGpu, EqualsOperationsOneByOneWithinRounding) {
  const Layer& layer = GetParam();
  for (const int32_t position : {0, 1, 63, 64, 65, 500, 4000}) {
    SCOPED_TRACE(position);
    Work work(layer, position);
    const std::vector<float> expected = work.run(false);
    const auto changed = static_cast<double>(work.changed());
    const std::vector<float> actual = work.run(true);
    EXPECT_NEAR(static_cast<double>(work.changed()), 2 * changed, 0.05 * changed + 4);
    double squares = 0;
    for (const float value : expected) squares += double{value} * double{value};
    const double size = std::sqrt(squares / static_cast<double>(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], (layer.activations == Dtype::bf16 ? 0.1 : 0.02) * size) << i;
    }
  }
}

TEST_P(ChainGpu, GivesTheSameBitsEachTime) {
  Work work(GetParam(), 777);
  const std::vector<float> first = work.run(true);
  for (int turn = 0; turn < 8; ++turn) ASSERT_EQ(work.run(true), first);
}

INSTANTIATE_TEST_SUITE_P(Chain, ChainGpu, ::testing::ValuesIn(layers),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace quern::testing
