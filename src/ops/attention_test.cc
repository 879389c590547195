#include "ops/attention.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "formats/half.h"
#include "ops/test_device.h"

namespace quern {
namespace {

struct Shape {
  const char* name;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t length;  // tokens of the longest sequence
  int32_t window = 0;
  float softcap = 0.0F;
  bool causal = true;
  Dtype dtype = Dtype::f16;
  int32_t page_tokens = 16;
  int32_t latent_dim = 0;
  bool sinks = false;

  int32_t value_dim() const { return latent_dim > 0 ? latent_dim : head_dim; }
};

const Shape shapes[] = {
    {"SmolLM2", 9, 3, 64, 300},
    {"OneHead", 1, 1, 32, 40},
    {"FloatKv", 4, 2, 64, 70, 0, 0, true, Dtype::f32},
    {"OddDim", 6, 2, 80, 50},
    {"TinyDim", 4, 4, 12, 33, 0, 0, true, Dtype::f32},
    {"Gemma", 4, 1, 256, 300, 37, 0, true},
    {"Softcap", 8, 4, 128, 90, 0, 20.0F, true},
    {"WindowOfOne", 2, 2, 32, 40, 1},
    {"Encoder", 6, 6, 64, 65, 0, 0, false},
    {"EncoderWindow", 2, 1, 64, 100, 16, 0, false},
    {"WideGroup", 71, 1, 64, 40},
    {"WidePages", 4, 2, 64, 290, 0, 0, true, Dtype::f16, 32},
    {"LongHead", 2, 1, 512, 40},
    {"EightBits", 6, 2, 64, 300, 0, 0, true, Dtype::f8},
    {"EightBitsOdd", 4, 2, 20, 50, 0, 10.0F, true, Dtype::f8},
    {"Latent", 3, 1, 576, 300, 0, 0, true, Dtype::f16, 16, 512},
    {"LatentOdd", 5, 1, 28, 290, 0, 0, true, Dtype::f32, 32, 20},
    {"LatentEightBits", 4, 1, 80, 40, 0, 0, true, Dtype::f8, 16, 64},
    {"Sinks", 8, 2, 64, 290, 0, 0, true, Dtype::f16, 16, 0, true},
    {"SinksInWindow", 4, 2, 32, 60, 5, 0, true, Dtype::f32, 16, 0, true},
};

/// Part of a sequence in a step.
struct Chunk {
  int32_t sequence;
  int32_t begin;
  int32_t end;
};

/// Sequences of different lengths with queries, keys and values, in pages that are scattered over a pool full of NaNs.
class Fixture {
 public:
  Fixture(const Shape& shape, int32_t sequences, int threads) : shape_(shape), device_(threads, 6 << 20) {
    for (int32_t i = 0; i < sequences; ++i) {
      const int32_t length = std::max(1, shape.length - 17 * i);
      const auto seed = static_cast<uint32_t>(10 * i);
      q_.push_back(TestMatrix::random(length, shape.heads * shape.head_dim, seed + 1));
      k_.push_back(TestMatrix::random(length, shape.kv_heads * shape.head_dim, seed + 2));
      v_.push_back(TestMatrix::random(length, shape.kv_heads * shape.head_dim, seed + 3));
    }
    const int32_t pages = (shape.length + shape.page_tokens - 1) / shape.page_tokens + 1;
    const int64_t planes = shape.latent_dim > 0 ? 1 : 2;
    const int64_t layer_bytes = planes * shape.kv_heads * shape.page_tokens * shape.head_dim * dtype_bytes(shape.dtype);
    kv_.page_bytes = 3 * layer_bytes;
    kv_.layer_offset = layer_bytes;
    pool_.assign(static_cast<size_t>(sequences * pages * kv_.page_bytes), std::byte{0xFF});  // NaN in f16 and f32
    kv_.pool = pool_.data();
    table_.resize(static_cast<size_t>(sequences * pages));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), std::mt19937(5));
    kv_.table = Tensor::dense(reinterpret_cast<std::byte*>(table_.data()), Dtype::i32, sequences, pages);
    kv_.page_tokens = shape.page_tokens;
    kv_.heads = shape.kv_heads;
    kv_.head_dim = shape.head_dim;
    kv_.latent_dim = shape.latent_dim;
    kv_.dtype = shape.dtype;
    if (shape.dtype == Dtype::f8) {
      for (int32_t head = 0; head < shape.kv_heads; ++head) {
        k_scale_.push_back(0.02F + 0.01F * static_cast<float>(head));
        v_scale_.push_back(shape.latent_dim > 0 ? k_scale_.back() : 0.05F - 0.02F * static_cast<float>(head));
      }
      kv_.k_scale = vector_view(k_scale_);
      kv_.v_scale = vector_view(v_scale_);
    }
    params_ = {shape.heads, 1.0F / std::sqrt(static_cast<float>(shape.head_dim)), shape.softcap, shape.window,
               shape.causal};
    for (int32_t head = 0; head < shape.heads && shape.sinks; ++head) sinks_.push_back(0.7F * static_cast<float>(head));
    if (shape.sinks) params_.sinks = vector_view(sinks_);
  }

  int32_t length(int32_t sequence) const { return q_[static_cast<size_t>(sequence)].rows(); }

  /// One step over `chunks`; results are kept by sequence and token.
  void step(const std::vector<Chunk>& chunks) {
    std::vector<int32_t> starts{0}, rows, positions;
    for (const Chunk& chunk : chunks) {
      rows.push_back(chunk.sequence);
      for (int32_t t = chunk.begin; t < chunk.end; ++t) positions.push_back(t);
      starts.push_back(static_cast<int32_t>(positions.size()));
    }
    const auto tokens = static_cast<int32_t>(positions.size());
    TestMatrix q = gather(q_, chunks, tokens);
    TestMatrix k = gather(k_, chunks, tokens);
    TestMatrix v = gather(v_, chunks, tokens);
    Segments segments{view(starts), view(rows), view(positions)};
    Exec exec = device_.exec();
    const Arena::Scope scope(exec.arena);
    write_kv(exec, k.tensor(), shape_.latent_dim > 0 ? Tensor{} : v.tensor(), kv_, segments);
    const Tensor out = attention(exec, q.tensor(), kv_, segments, params_);
    results_.resize(q_.size());
    int32_t row = 0;
    for (const Chunk& chunk : chunks) {
      auto& sequence = results_[static_cast<size_t>(chunk.sequence)];
      sequence.resize(static_cast<size_t>(length(chunk.sequence)));
      for (int32_t t = chunk.begin; t < chunk.end; ++t, ++row) {
        sequence[static_cast<size_t>(t)].assign(out.row<float>(row), out.row<float>(row) + out.dims[1]);
      }
    }
  }

  const std::vector<std::vector<std::vector<float>>>& results() const { return results_; }

  void expect_near_reference(int32_t sequence, int32_t token) {
    for (int32_t head = 0; head < shape_.heads; ++head) {
      const std::vector<double> expected = reference(sequence, token, head);
      for (int32_t i = 0; i < shape_.value_dim(); ++i) {
        const auto result = static_cast<double>(results_[static_cast<size_t>(sequence)][static_cast<size_t>(token)]
                                                        [static_cast<size_t>(head * shape_.value_dim() + i)]);
        ASSERT_NEAR(result, expected[static_cast<size_t>(i)], 4e-6)
            << "token " << token << " head " << head << " dim " << i;
      }
    }
  }

  /// Pages that no query at or after `position` sees get another owner, and hold something else.
  void forget_before(int32_t sequence, int32_t position) {
    const int32_t pages = std::max(0, position - shape_.window + 1) / shape_.page_tokens;
    for (int32_t i = 0; i < pages; ++i) kv_.table.row<int32_t>(sequence)[i] = 1 << 30;
  }

 private:
  TestMatrix gather(std::vector<TestMatrix>& from, const std::vector<Chunk>& chunks, int32_t tokens) {
    TestMatrix result(tokens, from[0].cols());
    int32_t row = 0;
    for (const Chunk& chunk : chunks) {
      for (int32_t t = chunk.begin; t < chunk.end; ++t, ++row) {
        for (int32_t i = 0; i < result.cols(); ++i)
          result.at(row, i) = from[static_cast<size_t>(chunk.sequence)].at(t, i);
      }
    }
    return result;
  }

  static Tensor vector_view(std::vector<float>& values) {
    return Tensor::dense(reinterpret_cast<std::byte*>(values.data()), Dtype::f32, static_cast<int32_t>(values.size()));
  }
  /// What the pages hold of a head's value.
  double stored(float value, const std::vector<float>& scales, int32_t head) const {
    if (shape_.dtype == Dtype::f8) {
      const float scale = scales[static_cast<size_t>(head)];
      return static_cast<double>(e4m3_to_f32(f32_to_e4m3(value * (1.0F / scale)))) * static_cast<double>(scale);
    }
    return static_cast<double>(shape_.dtype == Dtype::f16 ? f16_to_f32(f32_to_f16(value)) : value);
  }

  std::vector<double> reference(int32_t sequence, int32_t token, int32_t head) {
    TestMatrix& q = q_[static_cast<size_t>(sequence)];
    TestMatrix& k = k_[static_cast<size_t>(sequence)];
    const bool latent = shape_.latent_dim > 0;
    TestMatrix& v = (latent ? k_ : v_)[static_cast<size_t>(sequence)];
    const int32_t dim = shape_.head_dim;
    const int32_t kv_head = head / (shape_.heads / shape_.kv_heads);
    const int32_t window = shape_.window > 0 ? shape_.window : 1 << 30;
    const int32_t end = shape_.causal ? token + 1 : std::min(length(sequence), token + window);
    std::vector<double> result(static_cast<size_t>(shape_.value_dim()), 0.0);
    double total = shape_.sinks ? std::exp(static_cast<double>(sinks_[static_cast<size_t>(head)])) : 0.0;
    for (int32_t j = std::max(0, token - window + 1); j < end; ++j) {
      double score = 0;
      for (int32_t i = 0; i < dim; ++i)
        score += q.get(token, head * dim + i) * stored(k.at(j, kv_head * dim + i), k_scale_, kv_head);
      score *= static_cast<double>(params_.scale);
      const auto cap = static_cast<double>(shape_.softcap);
      if (cap > 0) score = cap * std::tanh(score / cap);
      const double weight = std::exp(score);
      total += weight;
      for (int32_t i = 0; i < shape_.value_dim(); ++i)
        result[static_cast<size_t>(i)] += weight * stored(v.at(j, kv_head * dim + i), v_scale_, kv_head);
    }
    for (double& value : result) value /= total;
    return result;
  }

  Shape shape_;
  TestDevice device_;
  std::vector<TestMatrix> q_, k_, v_;
  std::vector<std::byte> pool_;
  std::vector<int32_t> table_;
  std::vector<float> k_scale_, v_scale_, sinks_;
  PagedKv kv_;
  AttentionParams params_;
  std::vector<std::vector<std::vector<float>>> results_;
};

class Attention : public testing::TestWithParam<Shape> {};
/// Not an encoder's, whose sequences are never split.
class AttentionInPieces : public Attention {};
std::vector<Shape> shapes_in_pieces() {
  std::vector<Shape> causal;
  std::copy_if(std::begin(shapes), std::end(shapes), std::back_inserter(causal),
               [](const Shape& shape) { return shape.causal; });
  return causal;
}

TEST_P(Attention, AgreesWithADoubleReference) {
  at_every_isa([&] {
    Fixture fixture(GetParam(), 1, 2);

    fixture.step({{0, 0, fixture.length(0)}});

    for (int32_t token = 0; token < fixture.length(0); token += token < 40 ? 1 : 13) {
      fixture.expect_near_reference(0, token);
    }
    fixture.expect_near_reference(0, fixture.length(0) - 1);
  });
}

TEST_P(AttentionInPieces, GivesTheSameBitsWholeChunkedBatchedAndTokenByToken) {
  at_every_isa([&] {
    Fixture whole(GetParam(), 3, 2);
    for (int32_t i = 0; i < 3; ++i) whole.step({{i, 0, whole.length(i)}});

    Fixture chunked(GetParam(), 3, 1);
    const int32_t sizes[] = {7, 1, 16, 33, 2};
    for (int32_t i = 2; i >= 0; --i) {
      for (int32_t begin = 0, n = 0; begin < chunked.length(i); ++n) {
        const int32_t end = std::min(chunked.length(i), begin + sizes[n % 5]);
        chunked.step({{i, begin, end}});
        begin = end;
      }
    }
    Fixture batched(GetParam(), 3, 3);
    batched.step({{2, 0, batched.length(2)}, {0, 0, 5}, {1, 0, 1}});
    batched.step({{0, 5, batched.length(0)}, {1, 1, batched.length(1)}});
    Fixture single(GetParam(), 3, 4);
    constexpr int32_t later = 30;  // one sequence after the other has more keys than a split
    for (int32_t step = 0; step < single.length(0) + 2 * later; ++step) {
      std::vector<Chunk> chunks;
      for (int32_t i = 0; i < 3; ++i) {
        const int32_t t = step - i * later;
        if (t >= 0 && t < single.length(i)) chunks.push_back({i, t, t + 1});
      }
      if (!chunks.empty()) single.step(chunks);
    }

    EXPECT_TRUE(chunked.results() == whole.results());
    EXPECT_TRUE(batched.results() == whole.results());
    EXPECT_TRUE(single.results() == whole.results());
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention, testing::ValuesIn(shapes),
                         [](const auto& test) { return std::string(test.param.name); });
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionInPieces, testing::ValuesIn(shapes_in_pieces()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(AttentionWindow, DoesNotTouchPagesBehindIt) {
  at_every_isa([&] {
    Fixture fixture({"Window", 4, 2, 64, 200, 40}, 1, 2);
    fixture.step({{0, 0, 150}});

    fixture.forget_before(0, 150);
    fixture.step({{0, 150, 170}});
    fixture.forget_before(0, 170);
    fixture.step({{0, 170, 171}});

    for (const int32_t token : {150, 160, 169, 170}) fixture.expect_near_reference(0, token);
  });
}

TEST(AttentionSegments, MayBeEmpty) {
  Fixture fixture({"Empty", 4, 2, 64, 60}, 3, 2);

  fixture.step({{1, 0, 0}, {0, 0, 60}, {2, 0, 0}, {1, 0, 30}, {2, 0, 0}});

  fixture.expect_near_reference(0, 59);
  fixture.expect_near_reference(1, 29);
}

}  // namespace
}  // namespace quern
