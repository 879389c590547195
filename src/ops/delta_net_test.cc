#include "ops/delta_net.h"

#include <cstring>

#include "ops/recurrent_testing.h"

namespace quern {
namespace {

using testing::FloatMatrix;
using testing::Pieces;
using testing::RecurrentRows;

struct Case {
  int32_t key_heads, value_heads, key_dim, value_dim;
  bool tiled, log_rates;
  int32_t length;

  int32_t keys() const { return key_heads * key_dim; }
  int32_t values() const { return value_heads * value_dim; }
  int32_t columns() const { return 2 * keys() + values() + 2 * value_heads; }
};

/// Rates between -0.05 and -3, so that some heads remember long and some do not.
struct Rates {
  explicit Rates(const Case& c) {
    std::mt19937 random(5);
    std::uniform_real_distribution<float> uniform(-3.0F, 1.1F);
    for (int32_t h = 0; h < c.value_heads; ++h) {
      const float log_rate = uniform(random);
      rates.push_back(c.log_rates ? log_rate : -std::exp(log_rate));
      time_bias.push_back(0.3F * uniform(random));
    }
  }
  std::vector<float> rates, time_bias;
};

/// A text: q | k | v | beta | time. Keys have length 1, as models make them.
FloatMatrix random_text(const Case& c, Dtype type, uint32_t seed) {
  FloatMatrix text = FloatMatrix::random(type, c.length, c.columns(), 0, seed);
  for (int32_t t = 0; t < c.length; ++t) {
    for (int32_t head = 0; head < 2 * c.key_heads; ++head) {
      double sum = 0;
      for (int32_t i = 0; i < c.key_dim; ++i) sum += std::pow(text.get(t, head * c.key_dim + i), 2);
      for (int32_t i = 0; i < c.key_dim; ++i) {
        const int32_t column = head * c.key_dim + i;
        text.set(t, column, static_cast<float>(text.get(t, column) / std::sqrt(sum)));
      }
    }
  }
  return text;
}

/// The recurrence as it is written down, for one head: [length][value dim].
std::vector<std::vector<double>> reference(FloatMatrix& text, const Case& c, const Rates& rates, int32_t head) {
  const auto at = [](const std::vector<float>& values, int32_t i) { return double{values[static_cast<size_t>(i)]}; };
  const int32_t shared = c.value_heads / c.key_heads;
  const int32_t key = (c.tiled ? head % c.key_heads : head / shared) * c.key_dim;
  const double rate = c.log_rates ? -std::exp(at(rates.rates, head)) : at(rates.rates, head);
  const auto dims = [](int32_t n) { return static_cast<size_t>(n); };
  std::vector<std::vector<double>> state(dims(c.key_dim), std::vector<double>(dims(c.value_dim)));
  std::vector<std::vector<double>> out(dims(c.length), std::vector<double>(dims(c.value_dim)));
  for (int32_t t = 0; t < c.length; ++t) {
    const int32_t gates = 2 * c.keys() + c.values() + head;
    const double beta = 1 / (1 + std::exp(-text.get(t, gates)));
    const double decay =
        std::exp(rate * std::log1p(std::exp(text.get(t, gates + c.value_heads) + at(rates.time_bias, head))));
    for (int32_t j = 0; j < c.value_dim; ++j) {
      double known = 0;
      for (int32_t i = 0; i < c.key_dim; ++i) {
        known += (state[dims(i)][dims(j)] *= decay) * text.get(t, c.keys() + key + i);
      }
      const double news = (text.get(t, 2 * c.keys() + head * c.value_dim + j) - known) * beta;
      for (int32_t i = 0; i < c.key_dim; ++i) {
        state[dims(i)][dims(j)] += text.get(t, c.keys() + key + i) * news;
        out[dims(t)][dims(j)] += state[dims(i)][dims(j)] * text.get(t, key + i);
      }
    }
  }
  return out;
}

/// Runs one step; `gates` are f32 whatever the activations are.
Tensor run(Exec& exec, const Case& c, Rates& rates, Tensor x, FloatMatrix& gates, RecurrentRows& rows,
           const Segments& segments) {
  const DeltaNetParams params{c.key_heads, c.value_heads,     c.tiled,
                              c.log_rates, view(rates.rates), view(rates.time_bias)};
  return delta_net(exec,
                   {x.columns(0, c.keys()), x.columns(c.keys(), c.keys()), x.columns(2 * c.keys(), c.values()),
                    gates.tensor().columns(0, c.value_heads), gates.tensor().columns(c.value_heads, c.value_heads)},
                   params, rows.state(), segments);
}

FloatMatrix gates_of(const Case& c, FloatMatrix& x) {
  const int32_t tokens = x.tensor().dims[0];
  FloatMatrix gates(Dtype::f32, tokens, 2 * c.value_heads, 1);
  for (int32_t t = 0; t < tokens; ++t) {
    for (int32_t i = 0; i < 2 * c.value_heads; ++i) {
      gates.set(t, i, static_cast<float>(x.get(t, 2 * c.keys() + c.values() + i)));
    }
  }
  return gates;
}

void expect_the_reference(const Case& c, Dtype type) {
  Rates rates(c);
  std::vector<FloatMatrix> texts;
  std::vector<std::vector<std::vector<std::vector<double>>>> expected(2);
  for (uint32_t row = 0; row < 2; ++row) {
    texts.push_back(random_text(c, type, row + 1));
    for (int32_t h = 0; h < c.value_heads; ++h) expected[row].push_back(reference(texts.back(), c, rates, h));
  }
  for (const std::vector<Pieces>& plan : testing::recurrent_plans(c.length)) {
    RecurrentRows rows(2, delta_net_state_bytes(c.value_heads, c.key_dim, c.value_dim));
    for (const Pieces& pieces : plan) {
      TestDevice device;
      Exec exec = device.exec();
      exec.activations = type;
      FloatMatrix x = testing::tokens_of(rows, pieces, texts, type, c.columns());
      FloatMatrix gates = gates_of(c, x);
      const Segments segments = rows.next(pieces);

      const Tensor y = run(exec, c, rates, x.tensor(), gates, rows, segments);

      int32_t t = 0;
      for (const auto& [row, count] : pieces) {
        for (int32_t i = 0; i < count; ++i, ++t) {
          for (int32_t j = 0; j < c.values(); ++j) {
            const double wanted =
                row < 0
                    ? 0
                    : expected[static_cast<size_t>(row)][static_cast<size_t>(j / c.value_dim)]
                              [static_cast<size_t>(rows.length(row) - count + i)][static_cast<size_t>(j % c.value_dim)];
            ASSERT_NEAR(testing::float_at(y, t, j), wanted, 2 * testing::rounding(type) * std::abs(wanted) + 5e-6)
                << "token " << t << " column " << j;
          }
        }
      }
    }
    EXPECT_TRUE(rows.gaps_are_untouched());
  }
}

constexpr Case cases[] = {{1, 1, 16, 16, false, true, 9},
                          {2, 4, 32, 16, false, true, 90},
                          {2, 6, 48, 32, true, false, 20},
                          {1, 2, 128, 128, false, true, 12},
                          {2, 2, 256, 48, true, true, 8}};

TEST(DeltaNet, AgreesWithADoubleReferenceHoweverTextsAreCut) {
  at_every_isa([] {
    for (const Case& c : cases) expect_the_reference(c, Dtype::f32);
  });
}

TEST(DeltaNet, ATokensBitsDoNotDependOnTheStepItIsIn) {
  at_every_isa([] {
    const Case c{2, 4, 32, 32, false, true, 150};
    Rates rates(c);
    std::vector<FloatMatrix> texts{random_text(c, Dtype::f32, 1)};
    std::vector<std::vector<float>> results;
    for (const int32_t size : {c.length, 1, 70}) {
      RecurrentRows rows(1, delta_net_state_bytes(c.value_heads, c.key_dim, c.value_dim));
      std::vector<float>& all = results.emplace_back();
      for (int32_t done = 0; done < c.length; done += size) {
        const Pieces pieces{{0, std::min(size, c.length - done)}};
        TestDevice device;
        Exec exec = device.exec();
        FloatMatrix x = testing::tokens_of(rows, pieces, texts, Dtype::f32, c.columns());
        FloatMatrix gates = gates_of(c, x);
        const Segments segments = rows.next(pieces);
        const Tensor y = run(exec, c, rates, x.tensor(), gates, rows, segments);
        all.insert(all.end(), y.as<float>(), y.as<float>() + y.elements());
      }
    }
    for (const auto& result : results) {
      EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
    }
  });
}

using DeltaNetGpu = testing::OnGpu;

TEST_F(DeltaNetGpu, AgreesWithADoubleReferenceForEveryType) {
  for (const Dtype type : testing::activation_types) {
    for (const Case& c : cases) expect_the_reference(c, type);
  }
}

}  // namespace
}  // namespace quern
