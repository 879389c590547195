// Attention of half floats on a GPU, against a double reference over what the pages and queries hold.
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "formats/half.h"
#include "ops/attention.h"
#include "ops/gpu_testing.h"

namespace quern {
namespace {

struct Shape {
  const char* name;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  Dtype activations = Dtype::bf16;
  Dtype pages = Dtype::bf16;
  int32_t window = 0;
  float softcap = 0.0F;
  bool causal = true;
  int32_t page_tokens = 16;
  bool sinks = false;
  float sharpness = 1.0F;  // of the softmax: later keys exceed earlier ones by more
};

const Shape shapes[] = {
    {"Group4", 8, 2, 128},
    {"Group1", 3, 3, 128, Dtype::f16, Dtype::f16},
    {"Group7", 14, 2, 64},
    {"Group8", 16, 2, 128, Dtype::f16, Dtype::f16},
    {"WideGroup", 40, 1, 64},
    {"Dim80", 4, 2, 80},
    {"Dim96", 4, 1, 96, Dtype::f16, Dtype::f16},
    {"Dim40", 4, 4, 40},
    {"Dim192", 4, 2, 192},
    {"Dim256", 8, 4, 256},
    {"Window", 8, 4, 128, Dtype::bf16, Dtype::bf16, 300},
    {"SmallWindow", 4, 1, 256, Dtype::bf16, Dtype::bf16, 37},
    {"Softcap", 8, 4, 128, Dtype::f16, Dtype::f16, 0, 20.0F},
    {"Encoder", 6, 6, 64, Dtype::bf16, Dtype::bf16, 0, 0, false},
    {"EncoderWindow", 4, 2, 64, Dtype::f16, Dtype::f16, 50, 0, false},
    {"MixedTypes", 4, 2, 128, Dtype::bf16, Dtype::f16},
    {"FloatPages", 4, 2, 64, Dtype::bf16, Dtype::f32},
    {"LongHead", 2, 1, 512},
    {"EightBits", 8, 2, 128, Dtype::bf16, Dtype::f8},
    {"EightBitsDim64", 14, 2, 64, Dtype::f16, Dtype::f8, 300},
    {"EightBitsDim80", 4, 2, 80, Dtype::bf16, Dtype::f8},
    {"EightBitsDim256", 8, 4, 256, Dtype::f16, Dtype::f8, 0, 20.0F},
    {"WidePages", 4, 2, 128, Dtype::bf16, Dtype::bf16, 0, 0, true, 48},
    {"Sinks", 16, 2, 64, Dtype::bf16, Dtype::bf16, 0, 0, true, 16, true},
    {"SinksInWindow", 8, 4, 128, Dtype::f16, Dtype::f16, 100, 0, true, 16, true},
    {"SinksEightBits", 8, 2, 64, Dtype::bf16, Dtype::f8, 0, 0, true, 16, true},
};

uint16_t to_half(Dtype type, float value) { return type == Dtype::f16 ? f32_to_f16(value) : f32_to_bf16(value); }
double from_half(Dtype type, uint16_t bits) {
  return static_cast<double>(type == Dtype::f16 ? f16_to_f32(bits) : bf16_to_f32(bits));
}
/// What is left of a value in this type.
double stored(Dtype type, double value) {
  return type == Dtype::f32 ? value : from_half(type, to_half(type, static_cast<float>(value)));
}

/// Rows of half floats `padding` apart, the gaps full of NaNs.
class HalfMatrix {
 public:
  HalfMatrix(Dtype type, int32_t rows, int32_t cols, int32_t padding = 8)
      : type_(type), cols_(cols), stride_(cols + padding), bits_(static_cast<size_t>(rows * stride_), 0xFFFF) {}

  void set(int32_t row, int32_t col, double value) { bits_[at(row, col)] = to_half(type_, static_cast<float>(value)); }
  double get(int32_t row, int32_t col) const { return from_half(type_, bits_[at(row, col)]); }
  Tensor tensor() {
    const auto rows = static_cast<int32_t>(bits_.size() / static_cast<size_t>(stride_));
    Tensor view = Tensor::dense(reinterpret_cast<std::byte*>(bits_.data()), type_, rows, cols_);
    view.strides[0] = stride_;
    return view;
  }

 private:
  size_t at(int32_t row, int32_t col) const { return static_cast<size_t>(row * stride_ + col); }

  Dtype type_;
  int32_t cols_;
  int32_t stride_;
  std::vector<uint16_t> bits_;
};

/// Part of a sequence in a step; sequence -1: `end` tokens of padding.
struct Chunk {
  int32_t sequence;
  int32_t begin;
  int32_t end;
};

/// A result of one token: [heads * head_dim], as bits.
using Row = std::vector<uint16_t>;

/// Sequences in pages that are scattered over a pool full of NaNs, and the results of their tokens.
class Fixture {
 public:
  Fixture(const Shape& shape, std::vector<int32_t> lengths, int32_t padding = 8)
      : shape_(shape), padding_(padding), device_(1, 320 << 20) {
    const auto sequences = static_cast<int32_t>(lengths.size());
    for (int32_t i = 0; i < sequences; ++i) {
      const auto seed = static_cast<uint32_t>(10 * i);
      const int32_t length = lengths[static_cast<size_t>(i)];
      q_.push_back(random(length, shape.heads * shape.head_dim, seed + 1));
      k_.push_back(random(length, shape.kv_heads * shape.head_dim, seed + 2));
      v_.push_back(random(length, shape.kv_heads * shape.head_dim, seed + 3));
      results_.emplace_back(static_cast<size_t>(length));
    }
    const int32_t pages = *std::max_element(lengths.begin(), lengths.end()) / shape.page_tokens + 2;
    const int64_t layer_bytes =
        int64_t{2} * shape.kv_heads * shape.page_tokens * shape.head_dim * dtype_bytes(shape.pages);
    kv_.page_bytes = 3 * layer_bytes;
    kv_.layer_offset = layer_bytes;
    pool_.assign(static_cast<size_t>(sequences * pages * kv_.page_bytes), std::byte{0xFF});
    kv_.pool = pool_.data();
    table_.resize(static_cast<size_t>(sequences * pages));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), std::mt19937(5));
    kv_.table = Tensor::dense(reinterpret_cast<std::byte*>(table_.data()), Dtype::i32, sequences, pages);
    kv_.page_tokens = shape.page_tokens;
    kv_.heads = shape.kv_heads;
    kv_.head_dim = shape.head_dim;
    kv_.dtype = shape.pages;
    for (int32_t head = 0; head < shape.kv_heads && shape.pages == Dtype::f8; ++head) {
      scales_.push_back(0.02F + 0.01F * static_cast<float>(head));
      kv_.k_scale = Tensor::dense(reinterpret_cast<std::byte*>(scales_.data()), Dtype::f32, head + 1);
      kv_.v_scale = kv_.k_scale;
    }
    for (const Matrix& k : k_) kept_k_.push_back(kept(k));
    for (const Matrix& v : v_) kept_v_.push_back(kept(v));
    const float scale = shape.sharpness / std::sqrt(static_cast<float>(shape.head_dim));
    params_ = {shape.heads, scale, shape.softcap, shape.window, shape.causal};
    for (int32_t head = 0; head < shape.heads && shape.sinks; ++head) {
      sinks_.push_back(0.6F * static_cast<float>(head) - 1.0F);
      params_.sinks = Tensor::dense(reinterpret_cast<std::byte*>(sinks_.data()), Dtype::f32, head + 1);
    }
  }

  void set_invariant(bool batch_invariant) { invariant_ = batch_invariant; }

  /// One step over `chunks`.
  void step(const std::vector<Chunk>& chunks) {
    std::vector<int32_t> starts{0}, rows, positions;
    for (const Chunk& chunk : chunks) {
      rows.push_back(std::max(0, chunk.sequence));
      for (int32_t t = chunk.begin; t < chunk.end; ++t) positions.push_back(chunk.sequence < 0 ? -1 : t);
      starts.push_back(static_cast<int32_t>(positions.size()));
    }
    const auto tokens = static_cast<int32_t>(positions.size());
    HalfMatrix q = gather(q_, chunks, tokens);
    HalfMatrix k = gather(k_, chunks, tokens);
    HalfMatrix v = gather(v_, chunks, tokens);
    const Segments segments{view(starts), view(rows), view(positions)};
    Exec exec = device_.exec();
    exec.activations = shape_.activations;
    exec.queue.batch_invariant = invariant_;
    const Arena::Scope scope(exec.arena);
    write_kv(exec, k.tensor(), v.tensor(), kv_, segments);
    const Tensor out = attention(exec, q.tensor(), kv_, segments, params_);
    int32_t row = 0;
    for (const Chunk& chunk : chunks) {
      for (int32_t t = chunk.begin; t < chunk.end; ++t, ++row) {
        const Row result(out.row<uint16_t>(row), out.row<uint16_t>(row) + out.dims[1]);
        for (const uint16_t bits : result) ASSERT_TRUE(std::isfinite(from_half(shape_.activations, bits)));
        if (chunk.sequence < 0) {
          EXPECT_EQ(result, Row(result.size(), 0)) << "padding";
        } else {
          results_[static_cast<size_t>(chunk.sequence)][static_cast<size_t>(t)] = result;
        }
      }
    }
  }

  const std::vector<std::vector<Row>>& results() const { return results_; }

  void expect_near_reference(int32_t sequence, int32_t token) {
    const double tolerance = shape_.activations == Dtype::f16 && shape_.pages != Dtype::bf16 ? 4e-3 : 1.2e-2;
    const Row& row = results_[static_cast<size_t>(sequence)][static_cast<size_t>(token)];
    ASSERT_FALSE(row.empty());
    const std::vector<double>& expected = reference(sequence, token);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(from_half(shape_.activations, row[i]), expected[i], tolerance * std::max(0.25, std::abs(expected[i])))
          << "sequence " << sequence << " token " << token << " value " << i;
    }
  }

 private:
  /// [rows, cols] values.
  struct Matrix {
    int32_t cols = 0;
    std::vector<double> values;
    const double* row(int32_t i) const { return values.data() + int64_t{i} * cols; }
  };

  /// Random numbers that activations can hold.
  Matrix random(int32_t rows, int32_t cols, uint32_t seed) const {
    Matrix result{cols, std::vector<double>(static_cast<size_t>(rows * cols))};
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (double& value : result.values) {
      value = stored(shape_.activations, static_cast<double>(normal(generator)));
    }
    return result;
  }

  /// What pages hold of keys or values.
  Matrix kept(Matrix x) const {
    for (size_t i = 0; i < x.values.size(); ++i) {
      double& value = x.values[i];
      if (shape_.pages != Dtype::f8) {
        value = stored(shape_.pages, value);
        continue;
      }
      const float scale = scales_[i % static_cast<size_t>(x.cols) / static_cast<size_t>(shape_.head_dim)];
      const uint8_t bits = f32_to_e4m3(static_cast<float>(value) * (1.0F / scale));
      value = static_cast<double>(e4m3_to_f32(bits)) * static_cast<double>(scale);
    }
    return x;
  }

  HalfMatrix gather(const std::vector<Matrix>& from, const std::vector<Chunk>& chunks, int32_t tokens) {
    HalfMatrix result(shape_.activations, tokens, from[0].cols, padding_);
    int32_t row = 0;
    for (const Chunk& chunk : chunks) {
      for (int32_t t = chunk.begin; t < chunk.end; ++t, ++row) {
        for (int32_t i = 0; i < from[0].cols && chunk.sequence >= 0; ++i) {
          result.set(row, i, from[static_cast<size_t>(chunk.sequence)].row(t)[i]);
        }
      }
    }
    return result;
  }

  /// All heads of a token; computed once.
  const std::vector<double>& reference(int32_t sequence, int32_t token) {
    std::vector<double>& result = references_[{sequence, token}];
    if (!result.empty()) return result;
    for (int32_t head = 0; head < shape_.heads; ++head) {
      const std::vector<double> one = reference_of_head(sequence, token, head);
      result.insert(result.end(), one.begin(), one.end());
    }
    return result;
  }

  std::vector<double> reference_of_head(int32_t sequence, int32_t token, int32_t head) const {
    const Matrix& k = kept_k_[static_cast<size_t>(sequence)];
    const Matrix& v = kept_v_[static_cast<size_t>(sequence)];
    const int32_t dim = shape_.head_dim;
    const double* q = q_[static_cast<size_t>(sequence)].row(token) + head * dim;
    const int32_t from = head / (shape_.heads / shape_.kv_heads) * dim;
    const int32_t window = shape_.window > 0 ? shape_.window : 1 << 30;
    const auto length = static_cast<int32_t>(results_[static_cast<size_t>(sequence)].size());
    const int32_t end = shape_.causal ? token + 1 : std::min(length, token + window);
    const auto cap = static_cast<double>(shape_.softcap);
    std::vector<double> result(static_cast<size_t>(dim), 0.0);
    double total = shape_.sinks ? std::exp(static_cast<double>(sinks_[static_cast<size_t>(head)])) : 0.0;
    for (int32_t j = std::max(0, token - window + 1); j < end; ++j) {
      double score = std::inner_product(q, q + dim, k.row(j) + from, 0.0) * static_cast<double>(params_.scale);
      if (cap > 0) score = cap * std::tanh(score / cap);
      const double weight = std::exp(score);
      total += weight;
      for (int32_t i = 0; i < dim; ++i) result[static_cast<size_t>(i)] += weight * v.row(j)[from + i];
    }
    for (double& value : result) value /= total;
    return result;
  }

  Shape shape_;
  int32_t padding_;
  bool invariant_ = false;
  TestDevice device_;
  std::vector<Matrix> q_, k_, v_;  // what activations hold
  std::vector<Matrix> kept_k_, kept_v_;
  std::map<std::pair<int32_t, int32_t>, std::vector<double>> references_;
  std::vector<std::byte> pool_;
  std::vector<int32_t> table_;
  std::vector<float> scales_;  // of the kv heads, where pages hold 8-bit floats
  std::vector<float> sinks_;
  PagedKv kv_;
  AttentionParams params_;
  std::vector<std::vector<Row>> results_;
};

class GpuAttention : public testing::OnGpu, public ::testing::WithParamInterface<Shape> {};
/// Not an encoder's, whose sequences are never split.
class GpuAttentionInPieces : public GpuAttention {};
std::vector<Shape> shapes_in_pieces() {
  std::vector<Shape> causal;
  std::copy_if(std::begin(shapes), std::end(shapes), std::back_inserter(causal),
               [](const Shape& shape) { return shape.causal; });
  return causal;
}

TEST_P(GpuAttention, AgreesWithADoubleReferenceForWholePrompts) {
  Fixture fixture(GetParam(), {333, 1, 150});
  for (const bool invariant : {false, true}) {
    SCOPED_TRACE(invariant ? "batch invariant" : "fast");
    fixture.set_invariant(invariant);

    fixture.step({{0, 0, 333}, {-1, 0, 3}, {1, 0, 1}, {2, 0, 150}, {-1, 0, 1}});

    for (const int32_t token : {0, 1, 15, 16, 64, 200, 255, 256, 332}) {
      fixture.expect_near_reference(0, token);
    }
    fixture.expect_near_reference(1, 0);
    for (const int32_t token : {0, 47, 48, 149}) fixture.expect_near_reference(2, token);
  }
}

TEST_P(GpuAttentionInPieces, AgreesForStepsOfDecodesDraftsChunksAndPadding) {
  Fixture fixture(GetParam(), {1400, 700, 37, 513, 18, 300});
  for (const bool invariant : {false, true}) {
    SCOPED_TRACE(invariant ? "batch invariant" : "fast");
    fixture.set_invariant(invariant);
    fixture.step({{0, 0, 1399}, {1, 0, 692}});
    fixture.step({{2, 0, 36}, {3, 0, 512}, {5, 0, 129}});

    fixture.step({{0, 1399, 1400},
                  {1, 692, 700},
                  {-1, 0, 1},
                  {2, 36, 37},
                  {5, 129, 300},
                  {3, 512, 513},
                  {4, 0, 18},
                  {4, 18, 18},
                  {-1, 0, 5}});

    fixture.expect_near_reference(0, 1399);
    for (const int32_t token : {692, 695, 699}) fixture.expect_near_reference(1, token);
    fixture.expect_near_reference(2, 36);
    fixture.expect_near_reference(3, 512);
    fixture.expect_near_reference(4, 17);
    for (const int32_t token : {129, 200, 299}) fixture.expect_near_reference(5, token);
  }
}

TEST_P(GpuAttentionInPieces, GivesTheSameBitsWholeChunkedAndTokenByTokenWhenBatchInvariant) {
  const std::vector<int32_t> lengths{620, 90, 257};
  Fixture whole(GetParam(), lengths);
  whole.set_invariant(true);
  for (int32_t i = 0; i < 3; ++i) whole.step({{i, 0, lengths[static_cast<size_t>(i)]}});

  Fixture chunked(GetParam(), lengths);
  chunked.set_invariant(true);
  chunked.step({{2, 0, 257}, {0, 0, 5}, {1, 0, 1}});
  chunked.step({{0, 5, 560}, {1, 1, 90}});
  for (int32_t t = 560; t < 620; t += 3) chunked.step({{0, t, t + 3}});
  Fixture single(GetParam(), lengths);
  single.set_invariant(true);
  single.step({{0, 0, 560}, {1, 0, 30}, {2, 0, 200}});
  for (int32_t t = 0; t < 60; ++t) {
    std::vector<Chunk> chunks{{0, 560 + t, 561 + t}};
    chunks.push_back({1, 30 + t, 31 + t});
    if (t < 57) chunks.push_back({2, 200 + t, 201 + t});
    single.step(chunks);
  }

  EXPECT_TRUE(chunked.results() == whole.results());
  EXPECT_TRUE(single.results() == whole.results());
}

INSTANTIATE_TEST_SUITE_P(Shapes, GpuAttention, ::testing::ValuesIn(shapes),
                         [](const auto& test) { return std::string(test.param.name); });
INSTANTIATE_TEST_SUITE_P(Shapes, GpuAttentionInPieces, ::testing::ValuesIn(shapes_in_pieces()),
                         [](const auto& test) { return std::string(test.param.name); });

class GpuAttentionSteps : public GpuAttention {};

TEST_P(GpuAttentionSteps, LongContextsOfManySequencesAgree) {
  std::vector<int32_t> lengths{5001, 2999, 1};
  for (int32_t i = 0; i < 37; ++i) lengths.push_back(1 + 53 * i % 400);
  Fixture fixture(GetParam(), lengths);
  std::vector<Chunk> prompts, decodes;
  for (int32_t i = 0; i < static_cast<int32_t>(lengths.size()); ++i) {
    const int32_t length = lengths[static_cast<size_t>(i)];
    if (length > 1) prompts.push_back({i, 0, length - 1});
    decodes.push_back({i, length - 1, length});
  }
  for (const bool invariant : {false, true}) {
    SCOPED_TRACE(invariant ? "batch invariant" : "fast");
    fixture.set_invariant(invariant);
    fixture.step(prompts);

    fixture.step(decodes);

    for (const Chunk& chunk : decodes) fixture.expect_near_reference(chunk.sequence, chunk.begin);
    fixture.expect_near_reference(0, 4999);
    fixture.step({decodes[0]});
    fixture.expect_near_reference(0, 5000);
  }
}

TEST_P(GpuAttentionSteps, SeveralPromptsInOneStepAgree) {
  for (const auto& [count, length] : {std::pair(8, 1024), std::pair(64, 130), std::pair(5, 1504)}) {
    SCOPED_TRACE(::testing::Message() << count << " x " << length);
    Fixture fixture(GetParam(), std::vector<int32_t>(static_cast<size_t>(count), length));
    fixture.step({{0, 0, length - 2}, {count - 1, 0, 70}});
    std::vector<Chunk> chunks;
    for (int32_t i = 1; i < count - 1; ++i) chunks.push_back({i, 0, length});
    chunks.insert(chunks.begin() + 1, {0, length - 2, length - 1});
    chunks.push_back({count - 1, 70, length});

    fixture.step(chunks);

    fixture.expect_near_reference(0, length - 2);
    for (int32_t i = 1; i < count; i += 3) fixture.expect_near_reference(i, length - 1);
    fixture.expect_near_reference(count - 1, 100);
    fixture.expect_near_reference(count - 1, length - 1);
  }
}

TEST_P(GpuAttentionSteps, RowsNeedNotBeAligned) {
  Fixture fixture(GetParam(), {100}, 3);

  fixture.step({{0, 0, 100}});

  for (const int32_t token : {0, 50, 99}) fixture.expect_near_reference(0, token);
}

INSTANTIATE_TEST_SUITE_P(
    Long, GpuAttentionSteps,
    ::testing::Values(Shape{"Group4", 8, 2, 128}, Shape{"Window", 4, 1, 64, Dtype::f16, Dtype::f16, 1000},
                      Shape{"Sharp", 8, 2, 128, Dtype::bf16, Dtype::bf16, 0, 0, true, 16, false, 8},
                      Shape{"EightBits", 8, 2, 128, Dtype::bf16, Dtype::f8},
                      Shape{"EightBitsInWindow", 32, 8, 64, Dtype::f16, Dtype::f8, 1500, 0, true, 32},
                      Shape{"SharpEightBits", 4, 1, 64, Dtype::f16, Dtype::f8, 1000, 0, true, 32, false, 8}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace quern
