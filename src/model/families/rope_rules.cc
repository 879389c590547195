#include "model/families/rope_rules.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>
#include <vector>

namespace quern {
namespace {

/// One rope being read: the dictionary of its keys, and the frequencies so far.
struct Rope {
  Config& config;
  const Json& keys;
  RopeFrame frame;
  int dims = 0;
  double theta = 0;
  std::vector<double> inverse = {};
  double factor = 1.0;  // on sine and cosine
};

std::string rule_of(const Json& keys) {
  const std::string type = keys.string("rope_type").value_or(keys.string("type").value_or("default"));
  // Some files of Phi-3 call it yarn.
  if (type == "su" || keys.present("short_factor") != nullptr) return "longrope";
  if (type == "mrope" || type == "none") return "default";
  return type;
}

/// A finite number of the dictionary inside (0, max], or an error that names the key.
double positive(Rope& rope, std::string_view key, std::optional<double> fallback, double max = 1e9) {
  const std::optional<double> value = rope.keys.number(key);
  if (!value && fallback) return *fallback;
  if (value && *value > 0 && *value <= max) return *value;
  rope.config.refuse(fmt::format("config: \"{}\" of the rope scaling must be a positive number", key));
  return 1.0;
}

double original_positions(Rope& rope) {
  const double whole = rope.config.number_or("original_max_position_embeddings", 0.0);
  if (whole > 0) return whole;
  return positive(rope, "original_max_position_embeddings", rope.frame.max_positions);
}

void fill_plain(Rope& rope) {
  for (int j = 0; j < rope.dims / 2; ++j) rope.inverse.push_back(std::pow(rope.theta, -2.0 * j / rope.dims));
}

void scale_linear(Rope& rope) {
  const double factor = positive(rope, "factor", {});
  for (double& inverse : rope.inverse) inverse /= factor;
}

void scale_llama3(Rope& rope) {
  const double factor = positive(rope, "factor", {});
  const double low = positive(rope, "low_freq_factor", 1.0);
  const double high = positive(rope, "high_freq_factor", 4.0);
  const double original = original_positions(rope);
  if (high <= low) rope.config.refuse("config: \"high_freq_factor\" must be above \"low_freq_factor\"");
  for (double& inverse : rope.inverse) {
    const double length = 2.0 * std::numbers::pi / inverse;
    const double smooth = std::clamp((original / length - low) / (high - low), 0.0, 1.0);
    inverse = (1.0 - smooth) * inverse / factor + smooth * inverse;
  }
}

double yarn_magnitude(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

double yarn_attention(Rope& rope, double factor) {
  if (rope.keys.present("attention_factor") != nullptr) return positive(rope, "attention_factor", {});
  const double scale = rope.keys.number("mscale").value_or(0.0);
  const double all = rope.keys.number("mscale_all_dim").value_or(0.0);
  if (scale != 0 && all != 0) return yarn_magnitude(factor, scale) / yarn_magnitude(factor, all);
  return yarn_magnitude(factor, 1.0);
}

void scale_yarn(Rope& rope) {
  const double original = original_positions(rope);
  const double factor = positive(rope, "factor", rope.frame.max_positions / original);
  const bool truncate = rope.keys.boolean("truncate").value_or(true);
  const auto correction = [&](double rotations) {
    return rope.dims * std::log(original / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(rope.theta));
  };
  double low = correction(positive(rope, "beta_fast", 32.0));
  double high = correction(positive(rope, "beta_slow", 1.0));
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.dims - 1.0);
  if (low == high) high += 0.001;
  for (size_t j = 0; j < rope.inverse.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    rope.inverse[j] *= ramp / factor + (1.0 - ramp);
  }
  rope.factor = yarn_attention(rope, factor);
}

/// Divides by the list under `key`, one number per pair.
void divide_by_list(Rope& rope, std::string_view key) {
  const Json* list = rope.keys.present(key);
  const bool good = list != nullptr && list->is_array() && list->items().size() == rope.inverse.size() &&
                    std::all_of(list->items().begin(), list->items().end(),
                                [](const Json& value) { return value.is_number() && value.as_number() > 0; });
  if (!good) {
    rope.config.refuse(fmt::format("config: \"{}\" of the rope scaling must be a list of {} positive numbers", key,
                                   rope.inverse.size()));
    return;
  }
  for (size_t j = 0; j < rope.inverse.size(); ++j) rope.inverse[j] /= list->items()[j].as_number();
}

/// One static choice of the list: cached keys stay consistent whatever length a sequence reaches.
void scale_longrope(Rope& rope) {
  const double original = original_positions(rope);
  const double factor = positive(rope, "factor", rope.frame.max_positions / original);
  divide_by_list(rope, rope.frame.max_positions > original ? "long_factor" : "short_factor");
  const double natural =
      factor <= 1.0 || original <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
  rope.factor = positive(rope, "attention_factor", natural);
}

/// Only the first pairs rotate, as many as `part` of all.
void rotate_a_part(Rope& rope, double part) {
  const auto rotating = static_cast<size_t>(part * rope.dims / 2);
  for (size_t j = rotating; j < rope.inverse.size(); ++j) rope.inverse[j] = 0.0;
  const double factor = positive(rope, "factor", 1.0);
  for (double& inverse : rope.inverse) inverse /= factor;
}

void apply_rule(Rope& rope, const std::string& rule) {
  // "dynamic" changes nothing up to max_position_embeddings, and longer contexts are not offered: rescaling in the
  // middle of a sequence would not fit the keys that are cached.
  if (rule == "default" || rule == "dynamic") return;
  if (rule == "linear") return scale_linear(rope);
  if (rule == "llama3") return scale_llama3(rope);
  if (rule == "yarn") return scale_yarn(rope);
  if (rule == "longrope") return scale_longrope(rope);
  if (rule == "factors") return divide_by_list(rope, "factors");
  rope.config.refuse(
      fmt::format("config: the rope scaling \"{}\" is not supported; known are default, linear, dynamic, "
                  "llama3, yarn, longrope and proportional",
                  rule));
}

RopeSpec make_rope(Config& config, const RopeFrame& frame, const Json& keys, double theta, const std::string& rule) {
  const double partial = keys.number("partial_rotary_factor").value_or(config.number_or("partial_rotary_factor", 1.0));
  if (!(partial > 0 && partial <= 1)) config.refuse("config: \"partial_rotary_factor\" must be above 0 and at most 1");
  if (!(theta > 1 && theta <= 1e12)) config.refuse("config: \"rope_theta\" must be above 1");
  if (!config.ok()) return {};
  const bool whole = rule == "proportional";  // which leaves dimensions in place by not turning them
  Rope rope{config, keys, frame, whole ? frame.head_dim : static_cast<int>(frame.head_dim * partial), theta};
  if (rope.dims < 2 || rope.dims % 2 != 0) {
    config.refuse(
        fmt::format("config: \"partial_rotary_factor\" rotates {} dimensions, which is no even number", rope.dims));
    return {};
  }
  fill_plain(rope);
  if (whole) {
    rotate_a_part(rope, partial);
  } else {
    apply_rule(rope, rule);
  }
  RopeSpec spec;
  spec.dims = rope.dims;
  for (const double inverse : rope.inverse) spec.inverse_frequencies.push_back(static_cast<float>(inverse));
  spec.factor = static_cast<float>(rope.factor);
  return spec;
}

}  // namespace

const Json& rope_keys(const Config& config, std::string_view layer_kind) {
  static const Json none = Json(Json::Object{});
  const Json* keys = config.find("rope_parameters");
  if (keys == nullptr) keys = config.find("rope_scaling");
  if (keys == nullptr || !keys->is_object()) return none;
  const Json* of_kind = keys->present(layer_kind);
  return of_kind != nullptr && of_kind->is_object() ? *of_kind : *keys;
}

RopeSpec read_rope(Config& config, const RopeFrame& frame, std::string_view layer_kind) {
  const Json& keys = rope_keys(config, layer_kind);
  const double theta = keys.number("rope_theta").value_or(config.number_or("rope_theta", frame.default_theta));
  return make_rope(config, frame, keys, theta, rule_of(keys));
}

RopeSpec plain_rope(Config& config, const RopeFrame& frame, double theta) {
  return make_rope(config, frame, Json(Json::Object{}), theta, "default");
}

int extended_positions(Config& config, int max_positions, int max) {
  const Json& keys = rope_keys(config, "full_attention");
  const std::string rule = rule_of(keys);
  const double factor = keys.number("factor").value_or(1.0);
  double positions = max_positions;
  if (rule == "linear") positions = max_positions * factor;
  if (rule == "yarn") {
    positions = std::max(positions, keys.number("original_max_position_embeddings").value_or(positions) * factor);
  }
  return static_cast<int>(std::clamp(positions, 1.0, static_cast<double>(max)));
}

}  // namespace quern
