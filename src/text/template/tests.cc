// Tests: what may stand after `is`.
#include <cmath>
#include <fmt/format.h>
#include <unordered_map>

#include "text/template/operators.h"

namespace quern {

namespace {

/// One argument of a test; undefined after a failure.
Value operand(Renderer& renderer, std::string_view name, const Arguments& arguments) {
  const Bound bound(renderer, name, arguments, {"other"}, 1);
  return bound.value(0);
}

template <Operator op>
bool test_compare(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Value other = operand(renderer, "comparison", arguments);
  return !renderer.budget().failed() && compare(renderer, op, self, other);
}

bool is_multiple(Renderer& renderer, const Value& self, const Value& divisor, int64_t rest) {
  const Value found = apply(renderer, Operator::modulo, self, divisor);
  return found.is_number() && found.number() == static_cast<double>(rest);
}

bool test_divisibleby(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Value divisor = operand(renderer, "divisibleby", arguments);
  return !renderer.budget().failed() && is_multiple(renderer, self, divisor, 0);
}

bool test_even(Renderer& renderer, const Value& self, const Arguments&) {
  return is_multiple(renderer, self, int64_t{2}, 0);
}
bool test_odd(Renderer& renderer, const Value& self, const Arguments&) {
  return is_multiple(renderer, self, int64_t{2}, 1);
}

bool test_sameas(Renderer& renderer, const Value& self, const Arguments& arguments) {
  return self.same_as(operand(renderer, "sameas", arguments));
}

bool test_defined(Renderer&, const Value& self, const Arguments&) { return !self.is_undefined(); }
bool test_undefined(Renderer&, const Value& self, const Arguments&) { return self.is_undefined(); }
bool test_none(Renderer&, const Value& self, const Arguments&) { return self.is_none(); }
bool test_boolean(Renderer&, const Value& self, const Arguments&) { return self.is_bool(); }
bool test_true(Renderer&, const Value& self, const Arguments&) { return self.is_bool() && self.integer() == 1; }
bool test_false(Renderer&, const Value& self, const Arguments&) { return self.is_bool() && self.integer() == 0; }
bool test_integer(Renderer&, const Value& self, const Arguments&) { return self.is_integer(); }
bool test_float(Renderer&, const Value& self, const Arguments&) { return self.is_float(); }
bool test_number(Renderer&, const Value& self, const Arguments&) { return self.is_number(); }
bool test_string(Renderer&, const Value& self, const Arguments&) { return self.is_text(); }
bool test_mapping(Renderer&, const Value& self, const Arguments&) { return self.dict() != nullptr; }
bool test_escaped(Renderer&, const Value& self, const Arguments&) { return self.is_text() && self.text().markup; }

bool test_iterable(Renderer&, const Value& self, const Arguments&) {
  return self.is_undefined() || self.is_text() || self.sequence() || self.dict() || self.as<Loop>();
}

/// Python: has a length and items by index; dicts count too.
bool test_sequence(Renderer&, const Value& self, const Arguments&) {
  using Kind = ValueList::Kind;
  if (const ValueList* sequence = self.sequence()) {
    return sequence->kind == Kind::list || sequence->kind == Kind::tuple || sequence->kind == Kind::range;
  }
  return self.is_undefined() || self.is_text() || self.dict() != nullptr;
}

bool test_callable(Renderer&, const Value& self, const Arguments&) {
  return self.is_undefined() || self.as<Function>() || self.as<Macro>() || self.as<Loop>() || self.as<Joiner>();
}

bool has_case(Renderer& renderer, const Value& self, bool (*right)(uint32_t), bool (*wrong)(uint32_t)) {
  const TextRef text = renderer.text_of(self);
  renderer.budget().spend_bytes(text->size());
  bool found = false;
  for (size_t i = 0; i < text->size(); i += character_size(text->bytes, i)) {
    const uint32_t c = character_at(text->bytes, i);
    if (wrong(c)) return false;
    found = found || right(c);
  }
  return found;
}

bool test_lower(Renderer& renderer, const Value& self, const Arguments&) {
  return has_case(renderer, self, is_lower, is_upper);
}
bool test_upper(Renderer& renderer, const Value& self, const Arguments&) {
  return has_case(renderer, self, is_upper, is_lower);
}

bool test_filter(Renderer&, const Value& self, const Arguments&) {
  return self.is_text() && find_filter(self.text().bytes) != nullptr;
}
bool test_test(Renderer&, const Value& self, const Arguments&) {
  return self.is_text() && find_test(self.text().bytes) != nullptr;
}

}  // namespace

TestCode find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, TestCode> kTests = {
      {"!=", test_compare<Operator::not_equal>},
      {"<", test_compare<Operator::less>},
      {"<=", test_compare<Operator::less_equal>},
      {"==", test_compare<Operator::equal>},
      {">", test_compare<Operator::greater>},
      {">=", test_compare<Operator::greater_equal>},
      {"boolean", test_boolean},
      {"callable", test_callable},
      {"defined", test_defined},
      {"divisibleby", test_divisibleby},
      {"eq", test_compare<Operator::equal>},
      {"equalto", test_compare<Operator::equal>},
      {"escaped", test_escaped},
      {"even", test_even},
      {"false", test_false},
      {"filter", test_filter},
      {"float", test_float},
      {"ge", test_compare<Operator::greater_equal>},
      {"greaterthan", test_compare<Operator::greater>},
      {"gt", test_compare<Operator::greater>},
      {"in", test_compare<Operator::in>},
      {"integer", test_integer},
      {"iterable", test_iterable},
      {"le", test_compare<Operator::less_equal>},
      {"lessthan", test_compare<Operator::less>},
      {"lower", test_lower},
      {"lt", test_compare<Operator::less>},
      {"mapping", test_mapping},
      {"ne", test_compare<Operator::not_equal>},
      {"none", test_none},
      {"number", test_number},
      {"odd", test_odd},
      {"sameas", test_sameas},
      {"sequence", test_sequence},
      {"string", test_string},
      {"test", test_test},
      {"true", test_true},
      {"undefined", test_undefined},
      {"upper", test_upper},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace quern
