// Operations that a GPU does on the way of the next one, most of them of one token: against the same operations one by
// one.
#include <tuple>

#include "ops/gated.h"
#include "ops/gated_linear.h"
#include "ops/gpu_testing.h"
#include "ops/linear_testing.h"
#include "ops/rms_norm.h"

namespace quern::testing {
namespace {

class HeldGpu : public OnGpu {
 protected:
  void SetUp() override {
    if (test_gpu() == nullptr)
      GTEST_SKIP() << "there is no GPU; only a GPU holds operations, each has its own tests on the CPU";
    OnGpu::SetUp();
  }
};
class OneTokenGpu : public HeldGpu, public ::testing::WithParamInterface<FormatId> {};

/// Two places: one where each operation ends before the next begins, and one where the GPU may do them together.
struct Places {
  TestDevice separate;
  TestDevice together;
  Exec one_by_one = separate.exec();
  Exec held = together.exec();

  explicit Places(Dtype activations) {
    held.trace = nullptr;
    one_by_one.activations = held.activations = activations;
    one_by_one.queue.batch_invariant = held.queue.batch_invariant = false;
  }
};

constexpr float eps = 1e-6F;

struct Results {
  Tensor normed, gate_up, hidden, other;
};

struct Layer {
  Matrix gate_up;
  Matrix other;
  Tensor weight;
  Activation activation;

  Results run(Exec exec, Tensor x) const {
    Results all;
    all.normed = rms_norm(exec, x, weight, eps);
    all.gate_up = linear(exec, all.normed, gate_up);
    all.hidden = gated(exec, all.gate_up, activation);
    all.other = linear(exec, all.normed, other);
    return all;
  }
};

void expect_near(const Tensor& got, const Tensor& want, double absolute, double relative, const char* what) {
  ASSERT_EQ(got.dims[0], want.dims[0]);
  ASSERT_EQ(got.dims[1], want.dims[1]);
  for (int token = 0; token < want.dims[0]; ++token) {
    for (int i = 0; i < want.dims[1]; ++i) {
      const double value = float_at(want, token, i);
      ASSERT_NEAR(float_at(got, token, i), value, absolute + relative * std::abs(value))
          << what << " " << token << " " << i;
    }
  }
}

/// An activation may be rounded otherwise where its norm's sum is added in another order.
TEST_P(OneTokenGpu, GivesWhatSeparateOperationsGive) {
  constexpr int hidden = 52;
  for (const Dtype type : {Dtype::bf16, Dtype::f16}) {
    for (const int cols : {256, 2304, 4096, 5120}) {
      for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
        SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::to_string(cols));
        const RandomWeight gate = random_weight(GetParam(), hidden, cols, 1);
        const RandomWeight up = random_weight(GetParam(), hidden, cols, 2);
        FloatMatrix x = FloatMatrix::random(Dtype::f32, 1, cols, 0, 3, 0.2F);
        FloatMatrix weight = FloatMatrix::random(Dtype::f32, 1, cols, 0, 4, 0.1F);
        const Layer layer{matrix_of({&gate, &up}), matrix_of({&up}),
                          Tensor::dense(weight.tensor().data, Dtype::f32, cols), activation};
        Places places(type);

        const Results want = layer.run(places.one_by_one, x.tensor());
        const Results got = layer.run(places.held, x.tensor());
        test_gpu()->wait();

        const double unit = 2 * rounding(type);
        const double product = unit * std::sqrt(cols) * 0.1;
        expect_near(got.normed, want.normed, 1e-7, unit, "normed");
        expect_near(got.gate_up, want.gate_up, product, unit, "gate_up");
        expect_near(got.hidden, want.hidden, 12 * product, 4 * unit, "hidden");
        expect_near(got.other, want.other, product, unit, "other");
      }
    }
  }
}

/// The tiles of many tokens: some that no row group, no token and no slice fills.
TEST_F(HeldGpu, GatesTheProductOfManyTokens) {
  for (const Dtype type : {Dtype::bf16, Dtype::f16}) {
    const FormatId format = type == Dtype::bf16 ? FormatId::bf16 : FormatId::f16;
    for (const auto& [hidden, cols, tokens] : {std::tuple{136, 1096, 1100}, {64, 1024, 1024}, {1096, 1024, 1300}}) {
      for (const Activation activation : {Activation::silu, Activation::gelu_erf}) {
        SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::to_string(hidden));
        const RandomWeight both = random_weight(format, 2 * hidden, cols, 1);
        const RandomWeight down = random_weight(format, 64, hidden, 3);
        Matrix gate_up = matrix_of({&both});
        gate_up.count = 2;
        gate_up.parts[0].rows = hidden;
        gate_up.parts[1] = gate_up.parts[0];
        gate_up.parts[1].data += int64_t{hidden} * cols * dtype_bytes(type);
        FloatMatrix x = FloatMatrix::random(type, tokens, cols, 8, 3, 0.2F);
        FloatMatrix got = FloatMatrix::random(Dtype::f32, tokens, 64, 0, 4);
        FloatMatrix want = FloatMatrix::random(Dtype::f32, tokens, 64, 0, 4);
        Places places(type);
        const auto run = [&](Exec exec, Tensor y) {
          gated_linear_into(exec, y, linear(exec, x.tensor(), gate_up), activation, matrix_of({&down}), true);
        };

        run(places.one_by_one, want.tensor());
        run(places.held, got.tensor());
        test_gpu()->wait();

        // One gate or up in hundreds is rounded the other way, where its sum was added in another order.
        expect_near(got.tensor(), want.tensor(), 4 * rounding(type), 4 * rounding(type), "y");
      }
    }
  }
}

/// A norm whose input the product adds to is done before that.
TEST_P(OneTokenGpu, AddsToWhatWasNormed) {
  constexpr int cols = 512;
  const RandomWeight square = random_weight(GetParam(), cols, cols, 1);
  FloatMatrix weight = FloatMatrix::random(Dtype::f32, 1, cols, 0, 4, 0.1F);
  const Tensor by = Tensor::dense(weight.tensor().data, Dtype::f32, cols);
  FloatMatrix x = FloatMatrix::random(Dtype::f32, 1, cols, 0, 3);
  FloatMatrix same = FloatMatrix::random(Dtype::f32, 1, cols, 0, 3);
  Places places(Dtype::bf16);
  Exec& exec = places.held;
  Exec& one_by_one = places.one_by_one;

  linear_into(exec, x.tensor(), rms_norm(exec, x.tensor(), by, eps), matrix_of({&square}), true);
  test_gpu()->wait();

  linear_into(one_by_one, same.tensor(), rms_norm(one_by_one, same.tensor(), by, eps), matrix_of({&square}), true);
  expect_near(x.tensor(), same.tensor(), 0, 0, "x");
}

/// A norm is no product that gates could come with.
TEST_P(OneTokenGpu, GatesWhatWasNormed) {
  constexpr int cols = 512;
  FloatMatrix x = FloatMatrix::random(Dtype::f32, 1, cols, 0, 3);
  FloatMatrix weight = FloatMatrix::random(Dtype::f32, 1, cols, 0, 4);
  const Tensor by = Tensor::dense(weight.tensor().data, Dtype::f32, cols);
  Places places(Dtype::bf16);

  const Tensor got = gated(places.held, rms_norm(places.held, x.tensor(), by, eps), Activation::silu);
  test_gpu()->wait();

  const Tensor normed = rms_norm(places.one_by_one, x.tensor(), by, eps);
  expect_near(got, gated(places.one_by_one, normed, Activation::silu), 0, 0, "gated");
}

/// What is held is done even if nothing takes it on its way.
TEST_P(OneTokenGpu, DoesWhatIsHeldBeforeAnythingElse) {
  constexpr int cols = 512;
  const RandomWeight gate = random_weight(GetParam(), 32, cols, 1);
  const RandomWeight up = random_weight(GetParam(), 32, cols, 2);
  FloatMatrix x = FloatMatrix::random(Dtype::f32, 1, cols, 0, 3);
  FloatMatrix other = FloatMatrix::random(Dtype::f32, 1, cols, 0, 5);
  FloatMatrix weight = FloatMatrix::random(Dtype::f32, 1, cols, 0, 4);
  const Tensor by = Tensor::dense(weight.tensor().data, Dtype::f32, cols);
  Places places(Dtype::bf16);
  Exec& exec = places.held;
  Exec& one_by_one = places.one_by_one;

  const Tensor first = rms_norm(exec, x.tensor(), by, eps);
  const Tensor second = rms_norm(exec, other.tensor(), by, eps);
  const Tensor product = linear(exec, first, matrix_of({&gate, &up}));
  test_gpu()->wait();

  const Tensor want_first = rms_norm(one_by_one, x.tensor(), by, eps);
  expect_near(first, want_first, 0, 0, "first");
  expect_near(second, rms_norm(one_by_one, other.tensor(), by, eps), 0, 0, "second");
  expect_near(product, linear(one_by_one, want_first, matrix_of({&gate, &up})), 0, 0, "product");
}

/// Tokens that a norm makes are 8-bit floats on its way where a product multiplies such. A few of these are rounded
/// otherwise where the norm's sum is added in another order.
TEST_F(HeldGpu, MakesNormedTokensEightBitFloats) {
  for (const Dtype type : {Dtype::bf16, Dtype::f16}) {
    for (const int cols : {64, 1056, 4096, 5120, 8192}) {
      for (const int tokens : {2, 40, 300}) {
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::to_string(tokens) + " x " + std::to_string(cols));
          const int rows = accumulate ? cols : 48;
          if (accumulate && cols > 1056) continue;
          const RandomWeight w = random_weight(FormatId::f8, rows, cols, 1);
          FloatMatrix x = FloatMatrix::random(Dtype::f32, tokens, cols, 8, 3, 0.2F);
          FloatMatrix same = FloatMatrix::random(Dtype::f32, tokens, cols, 8, 3, 0.2F);
          FloatMatrix weight = FloatMatrix::random(Dtype::f32, 1, cols, 0, 4, 0.1F);
          FloatMatrix scale = FloatMatrix::random(Dtype::f32, 1, rows, 0, 5);
          const Tensor by = Tensor::dense(weight.tensor().data, Dtype::f32, cols);
          Matrix matrix = matrix_of({&w});
          matrix.scale = Tensor::dense(scale.tensor().data, Dtype::f32, rows);
          Places places(type);

          const auto run = [&](Exec exec, const Tensor& stream) {
            const Tensor normed = rms_norm(exec, stream, by, eps);
            if (!accumulate) return std::pair(normed, linear(exec, normed, matrix));
            linear_into(exec, stream, normed, matrix, true);
            return std::pair(normed, stream);
          };
          const auto [want, want_product] = run(places.one_by_one, same.tensor());
          const auto [got, got_product] = run(places.held, x.tensor());
          test_gpu()->wait();

          const double unit = 2 * rounding(type);
          expect_near(got, want, 1e-7, unit, "normed");
          expect_near(got_product, want_product, 0.01 * std::sqrt(cols), unit, "product");
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, OneTokenGpu,
                         ::testing::Values(FormatId::bf16, FormatId::f16, FormatId::f8, FormatId::f8_block,
                                           FormatId::q4_0, FormatId::q4_k, FormatId::q6_k, FormatId::q8_0),
                         [](const auto& info) { return std::string(format_info(info.param).name); });

}  // namespace
}  // namespace quern::testing
