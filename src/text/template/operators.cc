#include "text/template/operators.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "text/template/format.h"

namespace quern {

namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

Value unsupported(Renderer& renderer, Operator op, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined() && side->undefined().message) return renderer.fail(*side->undefined().message);
  }
  return renderer.fail(fmt::format("unsupported operand types for {}: '{}' and '{}'", kSymbols[static_cast<size_t>(op)],
                                   left.type_name(), right.type_name()));
}

Value overflow(Renderer& renderer) { return renderer.fail("an integer does not fit into 64 bits"); }

Value integer_power(Renderer& renderer, int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return overflow(renderer);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow(renderer);
  }
  return result;
}

Value apply_integers(Renderer& renderer, Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::add: return __builtin_add_overflow(a, b, &result) ? overflow(renderer) : Value(result);
    case Operator::subtract: return __builtin_sub_overflow(a, b, &result) ? overflow(renderer) : Value(result);
    case Operator::multiply: return __builtin_mul_overflow(a, b, &result) ? overflow(renderer) : Value(result);
    case Operator::power:
      if (b >= 0) return integer_power(renderer, a, b);
      if (a == 0) return renderer.fail("0 can not be raised to a negative power");
      return std::pow(static_cast<double>(a), static_cast<double>(b));
    default: break;
  }
  if (b == 0) return renderer.fail("division by zero");
  if (op == Operator::divide) return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) {
    if (op == Operator::modulo) return int64_t{0};
    return __builtin_sub_overflow(int64_t{0}, a, &result) ? overflow(renderer) : Value(result);
  }
  const int64_t rest = a % b;
  const bool round_down = rest != 0 && (rest < 0) != (b < 0);
  if (op == Operator::floor_divide) return a / b - (round_down ? 1 : 0);
  return rest + (round_down ? b : 0);
}

Value apply_floats(Renderer& renderer, Operator op, double a, double b) {
  switch (op) {
    case Operator::add: return a + b;
    case Operator::subtract: return a - b;
    case Operator::multiply: return a * b;
    case Operator::power: {
      if (a == 0 && b < 0) return renderer.fail("0 can not be raised to a negative power");
      if (a < 0 && b != std::floor(b)) return renderer.fail("a negative number has no such power");
      const double result = std::pow(a, b);
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) return renderer.fail("a power is out of range");
      return result;
    }
    default: break;
  }
  if (b == 0) return renderer.fail("division by zero");
  if (op == Operator::divide) return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == Operator::modulo) return rest == 0 ? std::copysign(0.0, b) : rest;
  return std::floor(a / b) - ((a - rest) / b < std::floor(a / b) ? 1 : 0);
}

Value repeat(Renderer& renderer, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  Budget& budget = renderer.budget();
  const int64_t size = value.is_text() ? static_cast<int64_t>(value.text().size())
                                       : static_cast<int64_t>(value.sequence()->items.size());
  int64_t total = 0;
  if (__builtin_mul_overflow(size, count, &total)) return renderer.fail("a repetition is too long");
  if (value.is_text()) {
    Text result;
    if (!budget.allows_text(total)) return {};
    for (int64_t i = 0; i < count && total > 0 && budget.spend(); ++i) result.append(value.text());
    result.markup = value.text().markup;
    return renderer.heap().text(std::move(result));
  }
  if (!budget.spend(total)) return {};
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(total));
  for (int64_t i = 0; i < count && total > 0; ++i) {
    items.insert(items.end(), value.sequence()->items.begin(), value.sequence()->items.end());
  }
  return renderer.heap().list(std::move(items), value.sequence()->kind);
}

bool is_list_or_tuple(const Value& value) {
  const ValueList* sequence = value.sequence();
  return sequence && (sequence->kind == ValueList::Kind::list || sequence->kind == ValueList::Kind::tuple);
}

Value join_texts(Renderer& renderer, const Text& left, const Text& right) {
  if (!renderer.budget().allows_text(static_cast<int64_t>(left.size() + right.size()))) return {};
  const bool markup = left.markup || right.markup;
  Text result;
  result.append(markup && !left.markup ? escape_html(left) : left);
  result.append(markup && !right.markup ? escape_html(right) : right);
  result.markup = markup;
  return renderer.heap().text(std::move(result));
}

}  // namespace

Value apply(Renderer& renderer, Operator op, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return apply_integers(renderer, op, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return apply_floats(renderer, op, left.number(), right.number());
  if (op == Operator::add) {
    if (left.is_text() && right.is_text()) return join_texts(renderer, left.text(), right.text());
    if (is_list_or_tuple(left) && is_list_or_tuple(right) && left.sequence()->kind == right.sequence()->kind) {
      std::vector<Value> items = left.sequence()->items;
      items.insert(items.end(), right.sequence()->items.begin(), right.sequence()->items.end());
      return renderer.heap().list(std::move(items), left.sequence()->kind);
    }
  }
  if (op == Operator::multiply) {
    if ((left.is_text() || is_list_or_tuple(left)) && right.is_integral()) {
      return repeat(renderer, left, right.integer());
    }
    if ((right.is_text() || is_list_or_tuple(right)) && left.is_integral()) {
      return repeat(renderer, right, left.integer());
    }
  }
  if (op == Operator::modulo && left.is_text()) return format_percent(renderer, left.text(), right);
  return unsupported(renderer, op, left, right);
}

Value negate(Renderer& renderer, const Value& value, bool minus) {
  if (value.is_float()) return minus ? -value.number() : value.number();
  if (value.is_integral()) {
    return minus ? apply_integers(renderer, Operator::subtract, 0, value.integer()) : Value(value.integer());
  }
  if (value.is_undefined() && value.undefined().message) return renderer.fail(*value.undefined().message);
  return renderer.fail(fmt::format("bad operand type for unary {}: '{}'", minus ? '-' : '+', value.type_name()));
}

bool compare(Renderer& renderer, Operator op, const Value& left, const Value& right) {
  Budget& budget = renderer.budget();
  switch (op) {
    case Operator::equal: return equal(left, right, budget);
    case Operator::not_equal: return !equal(left, right, budget);
    case Operator::less: return order(left, right, budget) < 0;
    case Operator::less_equal: return order(left, right, budget) <= 0;
    case Operator::greater: return order(left, right, budget) > 0;
    case Operator::greater_equal: return order(left, right, budget) >= 0;
    case Operator::in: return contains(renderer, right, left);
    default: return !contains(renderer, right, left);
  }
}

bool contains(Renderer& renderer, const Value& container, const Value& item) {
  Budget& budget = renderer.budget();
  if (container.is_text()) {
    if (!item.is_text()) {
      renderer.fail(fmt::format("'in <string>' requires a string, not '{}'", item.type_name()));
      return false;
    }
    budget.spend_bytes(container.text().size());
    return container.text().bytes.find(item.text().bytes) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(item, budget) != nullptr;
  for (const Value& other : renderer.items_of(container)) {
    if (equal(other, item, budget)) return true;
    if (budget.failed()) return false;
  }
  return false;
}

std::optional<int64_t> length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) return static_cast<int64_t>(count_characters(value.text().bytes));
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->entries.size());
  const ValueList* sequence = value.sequence();
  if (sequence && sequence->kind != ValueList::Kind::generator) return static_cast<int64_t>(sequence->items.size());
  if (const auto* loop = value.as<Loop>()) return static_cast<int64_t>(loop->items.size());
  return {};
}

namespace {

bool is_subscriptable(const Value& value) {
  const ValueList* sequence = value.sequence();
  return value.is_text() || is_list_or_tuple(value) || (sequence && sequence->kind == ValueList::Kind::range);
}

Value character(Renderer& renderer, const Text& text, size_t position) {
  const size_t begin = character_offset(text.bytes, position);
  return renderer.heap().text(text.slice(begin, begin + character_size(text.bytes, begin)));
}

}  // namespace

std::optional<Value> index(Renderer& renderer, const Value& object, int64_t position) {
  if (!is_subscriptable(object)) return {};
  if (object.is_text()) renderer.budget().spend_bytes(object.text().size());
  const int64_t size = *length(object);
  if (position < 0) position += size;
  if (position < 0 || position >= size) return {};
  if (object.is_text()) return character(renderer, object.text(), static_cast<size_t>(position));
  return object.sequence()->items[static_cast<size_t>(position)];
}

namespace {

struct Bounds {
  int64_t start, step, count;
};

/// What Python's slice.indices makes of the three; nothing after a failure.
std::optional<Bounds> slice_bounds(Renderer& renderer, int64_t size, const Value* const parts[3]) {
  for (int i = 0; i < 3; ++i) {
    if (parts[i]->is_none() || parts[i]->is_integral()) continue;
    renderer.fail("slice indices must be integers or none");
    return {};
  }
  const int64_t step = parts[2]->is_none() ? 1 : parts[2]->integer();
  if (step == 0) {
    renderer.fail("slice step cannot be zero");
    return {};
  }
  const int64_t lowest = step > 0 ? 0 : -1;
  const int64_t highest = step > 0 ? size : size - 1;
  const auto clamp = [&](const Value& part, int64_t open) {
    if (part.is_none()) return open;
    const int64_t position = part.integer();
    return std::clamp(position < 0 ? position + size : position, lowest, highest);
  };
  const int64_t start = clamp(*parts[0], step > 0 ? lowest : highest);
  const int64_t stop = clamp(*parts[1], step > 0 ? highest : lowest);
  const int64_t distance = step > 0 ? stop - start : start - stop;
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const int64_t count = distance <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride + 1);
  return Bounds{start, step, count};
}

Value slice_text(Renderer& renderer, const Text& text, const Bounds& bounds) {
  renderer.budget().spend_bytes(text.size());
  if (bounds.step == 1) {
    const std::string_view all = text.bytes;
    const size_t begin = character_offset(all, static_cast<size_t>(bounds.start));
    const size_t end = begin + character_offset(all.substr(begin), static_cast<size_t>(bounds.count));
    return renderer.heap().text(text.slice(begin, end));
  }
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.size(); i += character_size(text.bytes, i)) offsets.push_back(i);
  if (!renderer.budget().spend(static_cast<int64_t>(offsets.size() / 8))) return {};
  Text result;
  result.markup = text.markup;
  for (int64_t i = 0; i < bounds.count; ++i) {
    const size_t at = offsets[static_cast<size_t>(bounds.start + i * bounds.step)];
    result.append(text, at, at + character_size(text.bytes, at));
  }
  return renderer.heap().text(std::move(result));
}

}  // namespace

Value slice(Renderer& renderer, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined() && object.undefined().message) return renderer.fail(*object.undefined().message);
  if (!is_subscriptable(object)) {
    return renderer.heap().undefined(fmt::format("'{} object' can not be sliced", object.type_name()));
  }
  const Value* const parts[3] = {&start, &stop, &step};
  const auto bounds = slice_bounds(renderer, *length(object), parts);
  if (!bounds) return {};
  if (object.is_text()) return slice_text(renderer, object.text(), *bounds);
  const ValueList& sequence = *object.sequence();
  if (!renderer.budget().spend(bounds->count / 8)) return {};
  std::vector<Value> items;
  for (int64_t i = 0; i < bounds->count; ++i) {
    items.push_back(sequence.items[static_cast<size_t>(bounds->start + i * bounds->step)]);
  }
  return renderer.heap().list(std::move(items), is_list_or_tuple(object) ? sequence.kind : ValueList::Kind::list);
}

}  // namespace quern
