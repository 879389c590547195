// Functions that every template can call.
#include <cctype>
#include <ctime>
#include <fmt/format.h>
#include <unordered_map>

#include "text/template/filters.h"

namespace quern {

namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja's sandbox

Value global_range(Renderer& renderer, const Value&, const Arguments& arguments) {
  const Bound bound(renderer, "range", arguments, {"start", "stop", "step"}, 1);
  if (renderer.budget().failed()) return {};
  const int64_t start = bound[1] ? bound.integer(0, 0) : 0;
  const int64_t stop = bound[1] ? bound.integer(1, 0) : bound.integer(0, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) return renderer.fail("range() arg 3 must not be zero");
  const auto distance = step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const auto stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  if (count > kMaxRange) return renderer.fail(fmt::format("range too big: more than {} items", kMaxRange));
  std::vector<Value> items;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) items.emplace_back(start + i * step);
  Value result = renderer.heap().list(std::move(items), ValueList::Kind::range);
  result.sequence()->start = start;
  result.sequence()->stop = stop;
  result.sequence()->step = step;
  return result;
}

/// The members of a mapping or of a list of pairs, then the keyword arguments.
Dict* make_dict(Renderer& renderer, std::string_view function, const Arguments& arguments) {
  Dict* result = renderer.heap().dict();
  Budget& budget = renderer.budget();
  if (arguments.positional.size() > 1)
    renderer.fail(fmt::format("{}() takes at most one positional argument", function));
  if (!arguments.positional.empty() && !budget.failed()) {
    const Value& source = arguments.positional[0];
    if (const Dict* dict = source.dict()) {
      for (const auto& [key, value] : dict->entries) result->set(key, value, budget);
    } else {
      for (const Value& pair : renderer.items_of(source)) {
        const std::vector<Value> parts = renderer.items_of(pair);
        if (!budget.failed() && parts.size() != 2) renderer.fail("a dict is made of pairs");
        if (budget.failed()) return result;
        result->set(parts[0], parts[1], budget);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) result->set(renderer.heap().text(name), value, budget);
  return result;
}

Value global_dict(Renderer& renderer, const Value&, const Arguments& arguments) {
  return make_dict(renderer, "dict", arguments);
}

Value global_namespace(Renderer& renderer, const Value&, const Arguments& arguments) {
  Namespace* space = renderer.heap().make<Namespace>();
  space->attributes = make_dict(renderer, "namespace", arguments);
  return static_cast<Object*>(space);
}

Value global_cycler(Renderer& renderer, const Value&, const Arguments& arguments) {
  if (arguments.positional.empty()) return renderer.fail("at least one item has to be provided");
  Cycler* cycler = renderer.heap().make<Cycler>();
  cycler->items = arguments.positional;
  return static_cast<Object*>(cycler);
}

Value global_joiner(Renderer& renderer, const Value&, const Arguments& arguments) {
  const Bound bound(renderer, "joiner", arguments, {"sep"});
  Joiner* joiner = renderer.heap().make<Joiner>();
  joiner->separator = bound[0] ? *bound[0] : renderer.heap().text(", ");
  return static_cast<Object*>(joiner);
}

Value global_raise_exception(Renderer& renderer, const Value&, const Arguments& arguments) {
  const Bound bound(renderer, "raise_exception", arguments, {"message"}, 1);
  return renderer.budget().failed() ? Value() : renderer.raise(renderer.text_of(bound.value(0))->bytes);
}

std::tm broken_down_time(std::optional<int64_t> unix_time) {
  std::tm time{};
  if (unix_time) {
    const auto seconds = static_cast<std::time_t>(*unix_time);
    gmtime_r(&seconds, &time);
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &time);
  }
  return time;
}

/// One directive such as "%Y" or "%-d"; the empty text when it is unknown.
std::string format_directive(const std::string& directive, const std::tm& time) {
  if (directive.back() == 'f') return "000000";
  char buffer[128];
  return std::string(buffer, std::strftime(buffer, sizeof(buffer), directive.c_str(), &time));
}

Value global_strftime_now(Renderer& renderer, const Value&, const Arguments& arguments) {
  const Bound bound(renderer, "strftime_now", arguments, {"format"}, 1);
  const TextRef format = bound.text(0);
  if (renderer.budget().failed()) return {};
  const std::tm time = broken_down_time(renderer.unix_time());
  Text result;
  format->each_run([&](std::string_view run, bool trusted) {
    std::string text;
    for (size_t i = 0; i < run.size(); ++i) {
      size_t end = i + 1;
      if (run[i] == '%' && end < run.size() && std::string_view("-_0^#").find(run[end]) != std::string_view::npos)
        ++end;
      if (run[i] == '%' && end < run.size() && std::isalpha(static_cast<unsigned char>(run[end]))) {
        text += format_directive(std::string(run.substr(i, end + 1 - i)), time);
        i = end;
      } else if (run.substr(i, 2) == "%%") {
        text += run[i++];
      } else {
        text += run[i];
      }
    }
    result.append(text, trusted);
  });
  return renderer.heap().text(std::move(result));
}

}  // namespace

NativeCode find_global(std::string_view name) {
  static const std::unordered_map<std::string_view, NativeCode> kGlobals = {
      {"cycler", global_cycler},
      {"dict", global_dict},
      {"joiner", global_joiner},
      {"namespace", global_namespace},
      {"raise_exception", global_raise_exception},
      {"range", global_range},
      {"strftime_now", global_strftime_now},
  };
  const auto found = kGlobals.find(name);
  return found == kGlobals.end() ? nullptr : found->second;
}

}  // namespace quern
