// A sweep: the same load at several concurrencies. What the server gives, how long its users wait, where it is best
// run, and what its tokens cost. Values.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/load/report.h"
#include "base/json.h"
#include "base/result.h"

namespace quern {

struct SweepOptions {
  std::string concurrencies;  // "1,2,4,8"; empty: no sweep
  std::string limits;         // "ttft:500,tpot:50", as of --goodput: what 99 of 100 requests must keep
  double price_per_hour = 0;  // of the machine; 0: not known
};

struct Sweep {
  std::vector<int> concurrencies;  // ascending
  Goodput limits;
  double price_per_hour = 0;

  static Result<Sweep> parse(const SweepOptions& options);

  /// Requests of one point: several for each that runs at once, so that beginning and end count little.
  static int requests_at(int concurrency) { return concurrency < 2 ? 8 : 4 * concurrency; }
};

struct SweepPoint {
  int concurrency = 0;
  LoadReport report;

  double tokens_per_second() const { return report.per_second(static_cast<double>(report.output_tokens)); }
};

/// Under limits the point that gives the most tokens and keeps them; without limits the smallest concurrency that gives
/// nine parts in ten of the most. Null when there is none.
const SweepPoint* knee_of(const Sweep& sweep, std::span<const SweepPoint> points);

/// What a million tokens cost at so many a second.
double million_price(double price_per_hour, double tokens_per_second);

/// One point, with its price.
Json point_json(const Sweep& sweep, const SweepPoint& point);
std::string sweep_head(const Sweep& sweep);
std::string point_line(const Sweep& sweep, const SweepPoint& point);
/// Which point is the knee, in one sentence.
std::string knee_line(const Sweep& sweep, std::span<const SweepPoint> points);

}  // namespace quern
