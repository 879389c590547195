// The list of all formats: the one place besides its own header that a new format adds a line to.
#pragma once

#include <array>
#include <string_view>

#include "base/check.h"
#include "formats/float.h"
#include "formats/fp4.h"
#include "formats/fp8.h"
#include "formats/iq.h"
#include "formats/q2_0.h"
#include "formats/q2_k.h"
#include "formats/q3_k.h"
#include "formats/q4_0.h"
#include "formats/q4_1.h"
#include "formats/q4_k.h"
#include "formats/q5_0.h"
#include "formats/q5_1.h"
#include "formats/q5_k.h"
#include "formats/q6_k.h"
#include "formats/q8_0.h"
#include "formats/weight.h"

namespace quern {

template <typename... Formats>
struct FormatList {};
using AllFormats = FormatList<F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q8_0, Q4_K, Q6_K, F8, F8_Block, Q5_1, Q2_0, Q2_K, Q3_K,
                              Q5_K, IQ4_NL, IQ4_XS, IQ3_XXS, IQ3_S, IQ2, IQ1, MXFP4, NVFP4>;

template <typename... Formats>
constexpr std::array<FormatId, sizeof...(Formats)> ids_of(FormatList<Formats...> /*list*/) {
  return {Formats::id...};
}
inline constexpr auto all_format_ids = ids_of(AllFormats{});

/// Calls visit(Format{}) for every format.
template <typename Visit>
void for_each_format(Visit&& visit) {
  [&]<typename... Formats>(FormatList<Formats...>) { (visit(Formats{}), ...); }(AllFormats{});
}

/// Calls visit(Format{}) for the format of this id.
template <typename Visit>
void visit_format(FormatId id, Visit&& visit) {
  bool found = false;
  for_each_format([&]<typename Format>(Format format) {
    if (Format::id != id) return;
    found = true;
    visit(format);
  });
  CHECK(found);
}

/// Groups of a row. The last may be part of one (Format::least_columns).
template <typename Format>
constexpr int64_t groups_of(int64_t cols) {
  return (cols + Format::group - 1) / Format::group;
}

/// Rows have a multiple of as many columns: of a group, where a format does not say less.
template <typename Format>
constexpr int least_columns() {
  if constexpr (requires { Format::least_columns; }) {
    return Format::least_columns;
  } else {
    return Format::group;
  }
}

/// A format's name and sizes: `data_bytes` and `scale_bytes` for each `group` of values, rows of a multiple of
/// `least_columns`.
struct FormatSizes {
  std::string_view name;
  int group = 0;
  int data_bytes = 0;
  int scale_bytes = 0;
  int least_columns = 0;
};

inline FormatSizes format_info(FormatId id) {
  FormatSizes sizes;
  visit_format(id, [&]<typename Format>(Format) {
    sizes = {Format::name, Format::group, Format::data_bytes, Format::scale_bytes, least_columns<Format>()};
  });
  return sizes;
}

}  // namespace quern
