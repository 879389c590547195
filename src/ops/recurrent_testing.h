// What the tests of recurrent operations share: segments of a step, and rows whose state is full of NaNs at first.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/attention.h"
#include "ops/gpu_testing.h"
#include "ops/row_state.h"

namespace quern::testing {

/// `count` further tokens of the sequence on a row.
struct Piece {
  int32_t row;
  int32_t count;
};
using Pieces = std::vector<Piece>;

/// Texts of several rows, and how far each has come.
class RecurrentRows {
 public:
  RecurrentRows(int32_t rows, int64_t state_bytes)
      : state_floats_(state_bytes / 4 + gap),
        memory_(static_cast<size_t>(rows * state_floats_), std::numeric_limits<float>::quiet_NaN()),
        lengths_(static_cast<size_t>(rows), 0) {}

  RowState state() { return {reinterpret_cast<std::byte*>(memory_.data()), state_floats_ * 4, int64_t{gap} * 4}; }
  int32_t length(int32_t row) const { return lengths_[static_cast<size_t>(row)]; }
  /// What lies before every row's state belongs to others.
  bool gaps_are_untouched() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const bool in_gap = static_cast<int64_t>(i) % state_floats_ < gap;
      if (in_gap && !std::isnan(memory_[i])) return false;
    }
    return true;
  }

  /// Segments of a step; the rows are that much longer then. Row -1 is nobody.
  Segments next(const Pieces& pieces) {
    starts_ = {0};
    rows_.clear();
    positions_.clear();
    for (const Piece& piece : pieces) {
      for (int32_t i = 0; i < piece.count; ++i) {
        positions_.push_back(piece.row < 0 ? -1 : lengths_[static_cast<size_t>(piece.row)]++);
      }
      starts_.push_back(static_cast<int32_t>(positions_.size()));
      rows_.push_back(std::max(piece.row, 0));
    }
    return {view(starts_), view(rows_), view(positions_)};
  }

 private:
  static constexpr int32_t gap = 4;

  int64_t state_floats_;
  std::vector<float> memory_;
  std::vector<int32_t> lengths_;
  std::vector<int32_t> starts_, rows_, positions_;
};

/// The tokens that the pieces take, one matrix for all of them.
inline FloatMatrix tokens_of(const RecurrentRows& rows, const Pieces& pieces, std::vector<FloatMatrix>& texts,
                             Dtype type, int32_t columns) {
  int32_t count = 0;
  for (const Piece& piece : pieces) count += piece.count;
  FloatMatrix x(type, count, columns, 3);
  int32_t to = 0;
  for (const Piece& piece : pieces) {
    for (int32_t i = 0; i < piece.count; ++i, ++to) {
      for (int32_t c = 0; c < columns; ++c) {
        const double value = piece.row < 0 ? std::numeric_limits<double>::quiet_NaN()
                                           : texts[static_cast<size_t>(piece.row)].get(rows.length(piece.row) + i, c);
        x.set(to, c, static_cast<float>(value));
      }
    }
  }
  return x;
}

/// Two texts whole, in pieces, and mixed; with tokens of nobody in between.
inline std::vector<std::vector<Pieces>> recurrent_plans(int32_t length) {
  std::vector<Pieces> singles;
  for (int32_t i = 0; i < length; ++i) singles.push_back({{1, 1}, {0, 1}});
  return {{{{0, length}}, {{1, length}}},
          {{{0, length}, {1, length}}},
          {{{1, 1}, {0, 2}}, {{0, length - 2}, {-1, 1}, {1, 4}}, {{-1, 2}, {1, length - 5}}},
          singles};
}

}  // namespace quern::testing
