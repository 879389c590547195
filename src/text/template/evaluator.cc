// Expressions of a rendering.
#include <fmt/format.h>

#include "text/template/operators.h"
#include "text/template/renderer.h"

namespace quern {

Value Renderer::evaluate(const Expression& expression) {
  using Kind = Expression::Kind;
  if (expression.kind == Kind::literal) return expression.literal;
  const Level level(budget_);
  if (!level || !budget_.spend()) return {};
  line_ = expression.line;
  const auto operand = [&](size_t i) { return evaluate(*expression.operands[i]); };
  switch (expression.kind) {
    case Kind::literal: return expression.literal;
    case Kind::name: return evaluate_name(expression.name);
    case Kind::tuple: return heap_.tuple(evaluate_all(expression.operands));
    case Kind::list: return heap_.list(evaluate_all(expression.operands));
    case Kind::dict: return evaluate_dict(expression);
    case Kind::attribute: return attribute(operand(0), expression.text);
    case Kind::item: {
      const Value object = operand(0);
      return item(object, operand(1));
    }
    case Kind::slice: return evaluate_slice(expression);
    case Kind::call: return evaluate_call(expression);
    case Kind::filter: return evaluate_filter(expression);
    case Kind::test: return evaluate_test(expression);
    case Kind::logical_not: return !is_true(operand(0));
    case Kind::negative: return negate(*this, operand(0), true);
    case Kind::positive: return negate(*this, operand(0), false);
    case Kind::logical_and:
    case Kind::logical_or: return evaluate_logical(expression);
    case Kind::binary: return evaluate_binary(expression);
    case Kind::compare: return evaluate_compare(expression);
    case Kind::concat: return evaluate_concat(expression);
    case Kind::conditional: return evaluate_conditional(expression);
  }
  return {};
}

Value Renderer::evaluate_name(int name) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return value;
    }
  }
  const auto& global = globals_[static_cast<size_t>(name)];
  if (global) return *global;
  return heap_.undefined(fmt::format("'{}' is undefined", program_.names[static_cast<size_t>(name)]));
}

std::vector<Value> Renderer::evaluate_all(const std::vector<ExpressionRef>& expressions) {
  std::vector<Value> result;
  result.reserve(expressions.size());
  for (const ExpressionRef& expression : expressions) result.push_back(evaluate(*expression));
  return result;
}

Value Renderer::evaluate_dict(const Expression& expression) {
  Dict* result = heap_.dict();
  for (size_t i = 0; i + 1 < expression.operands.size() && !budget_.failed(); i += 2) {
    const Value key = evaluate(*expression.operands[i]);
    result->set(key, evaluate(*expression.operands[i + 1]), budget_);
  }
  return result;
}

Value Renderer::evaluate_logical(const Expression& expression) {
  Value left = evaluate(*expression.operands[0]);
  const bool decided = is_true(left) == (expression.kind == Expression::Kind::logical_or);
  return decided || budget_.failed() ? left : evaluate(*expression.operands[1]);
}

Value Renderer::evaluate_binary(const Expression& expression) {
  const Value left = evaluate(*expression.operands[0]);
  const Value right = evaluate(*expression.operands[1]);
  return budget_.failed() ? Value() : apply(*this, expression.operators[0], left, right);
}

Value Renderer::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.operands[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.operands[i + 1]);
    if (budget_.failed() || !compare(*this, expression.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Renderer::evaluate_concat(const Expression& expression) {
  Text result;
  for (const ExpressionRef& part : expression.operands) {
    const TextRef text = text_of(evaluate(*part));
    if (!budget_.allows_text(static_cast<int64_t>(result.size() + text->size()))) return {};
    result.append(*text);
  }
  return heap_.text(std::move(result));
}

Value Renderer::evaluate_conditional(const Expression& expression) {
  const bool condition = is_true(evaluate(*expression.operands[0]));
  if (budget_.failed()) return {};
  if (condition) return evaluate(*expression.operands[1]);
  if (expression.operands[2]) return evaluate(*expression.operands[2]);
  return heap_.undefined("the inline if-expression evaluated to false and has no else");
}

Value Renderer::evaluate_slice(const Expression& expression) {
  const Value object = evaluate(*expression.operands[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    bounds[i] = expression.operands[i + 1] ? evaluate(*expression.operands[i + 1]) : Value(None());
  }
  return budget_.failed() ? Value() : slice(*this, object, bounds[0], bounds[1], bounds[2]);
}

Arguments Renderer::evaluate_arguments(const CallSyntax& call) {
  Arguments result;
  result.positional = evaluate_all(call.positional);
  for (const auto& [name, expression] : call.named) result.named.emplace_back(name, evaluate(*expression));
  if (call.star) {
    for (Value& item : items_of(evaluate(*call.star))) result.positional.push_back(std::move(item));
  }
  if (!call.double_star) return result;
  const Value more = evaluate(*call.double_star);
  if (!more.dict()) {
    fail("argument after ** must be a mapping");
    return result;
  }
  for (const auto& [key, value] : more.dict()->entries) {
    if (!key.is_text()) fail("keywords must be strings");
    if (!budget_.failed()) result.named.emplace_back(key.text().bytes, value);
  }
  return result;
}

Value Renderer::evaluate_call(const Expression& expression, const Value* caller) {
  const Value callee = evaluate(*expression.operands[0]);
  Arguments arguments = evaluate_arguments(*expression.call);
  if (caller) arguments.named.emplace_back("caller", *caller);
  return budget_.failed() ? Value() : call(callee, arguments);
}

Value Renderer::evaluate_filter(const Expression& expression, const Value* input) {
  const Level level(budget_);
  if (!level) return {};
  const ExpressionRef& operand = expression.operands[0];
  const Value value = !operand                                             ? *input
                      : input && operand->kind == Expression::Kind::filter ? evaluate_filter(*operand, input)
                                                                           : evaluate(*operand);
  const Arguments arguments = evaluate_arguments(*expression.call);
  if (budget_.failed()) return {};
  const NativeCode code = find_filter(expression.text);
  if (!code) return fail(fmt::format("no filter named '{}'", expression.text));
  return code(*this, value, arguments);
}

Value Renderer::evaluate_test(const Expression& expression) {
  const Value value = evaluate(*expression.operands[0]);
  const Arguments arguments = evaluate_arguments(*expression.call);
  if (budget_.failed()) return {};
  const TestCode code = find_test(expression.text);
  if (!code) return fail(fmt::format("no test named '{}'", expression.text));
  return code(*this, value, arguments);
}

}  // namespace quern
