#include <algorithm>
#include <fmt/format.h>

#include "text/template/parser.h"

namespace quern {

namespace {

using Kind = Expression::Kind;
using TokenKind = TemplateToken::Kind;

constexpr int kMaxNesting = 100;    // brackets, statements and operators inside each other
constexpr int kMaxTreeDepth = 500;  // also of chains such as a.b.c or a + b + c

template <typename... Operands>
std::vector<ExpressionRef> operands(Operands&&... items) {
  std::vector<ExpressionRef> result;
  (result.push_back(std::forward<Operands>(items)), ...);
  return result;
}

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) parser_.tokens_.fail(fmt::format("nested deeper than {} levels", kMaxNesting));
}

std::unique_ptr<Expression> ExpressionParser::node(Kind kind) const {
  auto result = std::make_unique<Expression>();
  result->kind = kind;
  result->line = tokens_.current().line;
  return result;
}

ExpressionRef ExpressionParser::with(std::unique_ptr<Expression> expression, std::vector<ExpressionRef> items) {
  expression->operands = std::move(items);
  int depth = 0;
  const auto include = [&](const ExpressionRef& item) {
    if (item) depth = std::max(depth, item->depth);
  };
  for (const ExpressionRef& item : expression->operands) include(item);
  if (const CallSyntax* call = expression->call.get()) {
    for (const ExpressionRef& item : call->positional) include(item);
    for (const auto& [name, item] : call->named) include(item);
    include(call->star);
    include(call->double_star);
  }
  expression->depth = depth + 1;
  if (expression->depth > kMaxTreeDepth) tokens_.fail("an expression is too long");
  return expression;
}

ExpressionRef ExpressionParser::binary(Operator op, ExpressionRef left, ExpressionRef right) {
  auto result = node(Kind::binary);
  result->operators = {op};
  return with(std::move(result), operands(std::move(left), std::move(right)));
}

ExpressionRef ExpressionParser::literal(Value value) {
  auto result = node(Kind::literal);
  result->literal = std::move(value);
  return result;
}

bool ExpressionParser::at_tuple_end() const {
  const TemplateToken& token = tokens_.current();
  return token.kind == TokenKind::output_end || token.kind == TokenKind::block_end || token.kind == TokenKind::end ||
         token.is_symbol(")");
}

ExpressionRef ExpressionParser::parse_tuple(bool with_conditional) {
  auto tuple = node(Kind::tuple);
  std::vector<ExpressionRef> items;
  bool comma = false;
  while (!at_tuple_end()) {
    items.push_back(with_conditional ? parse_expression() : parse_or());
    if (!tokens_.take_symbol(",")) break;
    comma = true;
  }
  if (!comma && items.size() == 1) return std::move(items[0]);
  if (items.empty()) tokens_.fail(fmt::format("expected an expression, got {}", tokens_.current().description()));
  return with(std::move(tuple), std::move(items));
}

ExpressionRef ExpressionParser::parse_expression() {
  const Nesting nesting(*this);
  return parse_conditional();
}

ExpressionRef ExpressionParser::parse_conditional() {
  ExpressionRef value = parse_or();
  while (tokens_.current().is_name("if")) {
    auto result = node(Kind::conditional);
    tokens_.take();
    ExpressionRef condition = parse_or();
    ExpressionRef otherwise;
    if (tokens_.take_name("else")) {
      const Nesting nesting(*this);
      otherwise = parse_conditional();
    }
    value = with(std::move(result), operands(std::move(condition), std::move(value), std::move(otherwise)));
  }
  return value;
}

ExpressionRef ExpressionParser::parse_or() {
  ExpressionRef left = parse_and();
  while (tokens_.take_name("or")) {
    auto result = node(Kind::logical_or);
    left = with(std::move(result), operands(std::move(left), parse_and()));
  }
  return left;
}

ExpressionRef ExpressionParser::parse_and() {
  ExpressionRef left = parse_not();
  while (tokens_.take_name("and")) {
    auto result = node(Kind::logical_and);
    left = with(std::move(result), operands(std::move(left), parse_not()));
  }
  return left;
}

ExpressionRef ExpressionParser::parse_not() {
  if (!tokens_.current().is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  auto result = node(Kind::logical_not);
  tokens_.take();
  return with(std::move(result), operands(parse_not()));
}

bool ExpressionParser::take_comparison(Operator& op) {
  static const std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
      {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal}};
  for (const auto& [symbol, candidate] : kOperators) {
    op = candidate;
    if (tokens_.take_symbol(symbol)) return true;
  }
  op = Operator::in;
  if (tokens_.take_name("in")) return true;
  op = Operator::not_in;
  if (!tokens_.current().is_name("not") || !tokens_.look().is_name("in")) return false;
  tokens_.take();
  tokens_.take();
  return true;
}

ExpressionRef ExpressionParser::parse_compare() {
  auto result = node(Kind::compare);
  std::vector<ExpressionRef> items = operands(parse_sum());
  Operator op = Operator::equal;
  while (take_comparison(op)) {
    result->operators.push_back(op);
    items.push_back(parse_sum());
  }
  if (items.size() == 1) return std::move(items[0]);
  return with(std::move(result), std::move(items));
}

ExpressionRef ExpressionParser::parse_sum() {
  ExpressionRef left = parse_concat();
  while (true) {
    if (tokens_.take_symbol("+")) {
      left = binary(Operator::add, std::move(left), parse_concat());
    } else if (tokens_.take_symbol("-")) {
      left = binary(Operator::subtract, std::move(left), parse_concat());
    } else {
      return left;
    }
  }
}

ExpressionRef ExpressionParser::parse_concat() {
  auto result = node(Kind::concat);
  std::vector<ExpressionRef> parts = operands(parse_product());
  while (tokens_.take_symbol("~")) parts.push_back(parse_product());
  if (parts.size() == 1) return std::move(parts[0]);
  return with(std::move(result), std::move(parts));
}

ExpressionRef ExpressionParser::parse_product() {
  ExpressionRef left = parse_power();
  while (true) {
    if (tokens_.take_symbol("*")) {
      left = binary(Operator::multiply, std::move(left), parse_power());
    } else if (tokens_.take_symbol("/")) {
      left = binary(Operator::divide, std::move(left), parse_power());
    } else if (tokens_.take_symbol("//")) {
      left = binary(Operator::floor_divide, std::move(left), parse_power());
    } else if (tokens_.take_symbol("%")) {
      left = binary(Operator::modulo, std::move(left), parse_power());
    } else {
      return left;
    }
  }
}

ExpressionRef ExpressionParser::parse_power() {
  ExpressionRef left = parse_unary();
  while (tokens_.take_symbol("**")) left = binary(Operator::power, std::move(left), parse_unary());
  return left;
}

ExpressionRef ExpressionParser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  ExpressionRef value;
  const bool negative = tokens_.current().is_symbol("-");
  if (negative || tokens_.current().is_symbol("+")) {
    auto result = node(negative ? Kind::negative : Kind::positive);
    tokens_.take();
    value = with(std::move(result), operands(parse_unary(false)));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionRef ExpressionParser::parse_primary() {
  const TemplateToken& token = tokens_.current();
  switch (token.kind) {
    case TokenKind::name: return parse_name();
    case TokenKind::string: return parse_strings();
    case TokenKind::integer: {
      ExpressionRef result = literal(token.integer);
      tokens_.take();
      return result;
    }
    case TokenKind::real: {
      ExpressionRef result = literal(token.real);
      tokens_.take();
      return result;
    }
    default: break;
  }
  if (token.is_symbol("(")) return parse_parentheses();
  if (token.is_symbol("[")) return parse_list();
  if (token.is_symbol("{")) return parse_dict();
  tokens_.fail(fmt::format("unexpected {}", token.description()));
  return literal(None());
}

ExpressionRef ExpressionParser::parse_name() {
  auto result = node(Kind::name);
  const std::string name = tokens_.take().text;
  if (name == "true" || name == "True") return literal(true);
  if (name == "false" || name == "False") return literal(false);
  if (name == "none" || name == "None") return literal(None());
  result->name = names_.number(name);
  return result;
}

ExpressionRef ExpressionParser::parse_strings() {
  std::string text;
  while (tokens_.current().kind == TokenKind::string) text += tokens_.take().text;
  return literal(std::make_shared<const Text>(std::move(text)));
}

ExpressionRef ExpressionParser::parse_parentheses() {
  tokens_.expect_symbol("(");
  if (tokens_.current().is_symbol(")")) {
    tokens_.take();
    return node(Kind::tuple);
  }
  ExpressionRef result = parse_tuple();
  tokens_.expect_symbol(")");
  return result;
}

ExpressionRef ExpressionParser::parse_list() {
  auto result = node(Kind::list);
  tokens_.expect_symbol("[");
  std::vector<ExpressionRef> items;
  while (!tokens_.failed() && !tokens_.current().is_symbol("]")) {
    items.push_back(parse_expression());
    if (!tokens_.take_symbol(",")) break;
  }
  tokens_.expect_symbol("]");
  return with(std::move(result), std::move(items));
}

ExpressionRef ExpressionParser::parse_dict() {
  auto result = node(Kind::dict);
  tokens_.expect_symbol("{");
  std::vector<ExpressionRef> items;
  while (!tokens_.failed() && !tokens_.current().is_symbol("}")) {
    items.push_back(parse_expression());
    tokens_.expect_symbol(":");
    items.push_back(parse_expression());
    if (!tokens_.take_symbol(",")) break;
  }
  tokens_.expect_symbol("}");
  return with(std::move(result), std::move(items));
}

ExpressionRef ExpressionParser::parse_postfix(ExpressionRef value) {
  while (!tokens_.failed()) {
    const TemplateToken& token = tokens_.current();
    if (token.is_symbol(".") || token.is_symbol("[")) {
      value = parse_subscript(std::move(value));
    } else if (token.is_symbol("(")) {
      auto result = node(Kind::call);
      result->call = parse_call();
      value = with(std::move(result), operands(std::move(value)));
    } else {
      break;
    }
  }
  return value;
}

ExpressionRef ExpressionParser::parse_subscript(ExpressionRef object) {
  const TemplateToken token = tokens_.take();
  if (token.text == "[") return parse_bracket(std::move(object), token.line);
  if (tokens_.current().kind == TokenKind::integer) {
    auto result = node(Kind::item);
    ExpressionRef key = literal(tokens_.take().integer);
    return with(std::move(result), operands(std::move(object), std::move(key)));
  }
  auto result = node(Kind::attribute);
  result->text = tokens_.expect_name();
  return with(std::move(result), operands(std::move(object)));
}

ExpressionRef ExpressionParser::parse_bracket(ExpressionRef object, int line) {
  ExpressionRef parts[3];
  int colons = 0;
  while (!tokens_.failed() && !tokens_.current().is_symbol("]")) {
    if (tokens_.current().is_symbol(":") && colons < 2) {
      tokens_.take();
      ++colons;
    } else if (!parts[colons]) {
      parts[colons] = colons == 0 ? parse_tuple_of_keys() : parse_expression();
    } else {
      break;
    }
  }
  tokens_.expect_symbol("]");
  auto result = node(colons > 0 ? Kind::slice : Kind::item);
  result->line = line;
  if (colons > 0) {
    return with(std::move(result),
                operands(std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])));
  }
  if (!parts[0]) tokens_.fail("a subscript is empty");
  return with(std::move(result), operands(std::move(object), std::move(parts[0])));
}

ExpressionRef ExpressionParser::parse_tuple_of_keys() {
  auto tuple = node(Kind::tuple);
  std::vector<ExpressionRef> keys = operands(parse_expression());
  while (tokens_.take_symbol(",")) keys.push_back(parse_expression());
  if (keys.size() == 1) return std::move(keys[0]);
  return with(std::move(tuple), std::move(keys));
}

std::unique_ptr<const CallSyntax> ExpressionParser::parse_call() {
  auto call = std::make_unique<CallSyntax>();
  tokens_.expect_symbol("(");
  while (!tokens_.failed() && !tokens_.current().is_symbol(")")) {
    parse_argument(*call);
    if (!tokens_.take_symbol(",")) break;
  }
  tokens_.expect_symbol(")");
  return call;
}

void ExpressionParser::parse_argument(CallSyntax& call) {
  bool in_order = !call.double_star;
  if (tokens_.take_symbol("*")) {
    in_order = in_order && !call.star;
    call.star = parse_expression();
  } else if (tokens_.take_symbol("**")) {
    call.double_star = parse_expression();
  } else if (tokens_.current().kind == TokenKind::name && tokens_.look().is_symbol("=")) {
    std::string name = tokens_.take().text;
    tokens_.take();
    call.named.emplace_back(std::move(name), parse_expression());
  } else {
    in_order = in_order && !call.star && call.named.empty();
    call.positional.push_back(parse_expression());
  }
  if (!in_order) tokens_.fail("the arguments of a call are in a wrong order");
}

ExpressionRef ExpressionParser::parse_filters_and_tests(ExpressionRef value) {
  while (!tokens_.failed()) {
    const TemplateToken& token = tokens_.current();
    if (token.is_symbol("|")) {
      value = parse_filters(std::move(value));
    } else if (token.is_name("is")) {
      value = parse_test(std::move(value));
    } else if (token.is_symbol("(")) {
      auto result = node(Kind::call);
      result->call = parse_call();
      value = with(std::move(result), operands(std::move(value)));
    } else {
      break;
    }
  }
  return value;
}

ExpressionRef ExpressionParser::parse_filters(ExpressionRef value, bool at_name) {
  while (!tokens_.failed() && (at_name || tokens_.take_symbol("|"))) {
    auto result = node(Kind::filter);
    result->text = tokens_.expect_name();
    while (tokens_.take_symbol(".")) result->text += "." + tokens_.expect_name();
    result->call = tokens_.current().is_symbol("(") ? parse_call() : std::make_unique<const CallSyntax>();
    value = with(std::move(result), operands(std::move(value)));
    at_name = false;
  }
  return value;
}

ExpressionRef ExpressionParser::parse_test(ExpressionRef value) {
  tokens_.take();
  const bool negated = tokens_.take_name("not");
  auto result = node(Kind::test);
  result->text = tokens_.expect_name();
  while (tokens_.take_symbol(".")) result->text += "." + tokens_.expect_name();
  const TemplateToken& token = tokens_.current();
  const bool is_operand = token.kind == TokenKind::name || token.kind == TokenKind::string ||
                          token.kind == TokenKind::integer || token.kind == TokenKind::real || token.is_symbol("[") ||
                          token.is_symbol("{");
  if (token.is_symbol("(")) {
    result->call = parse_call();
  } else {
    auto call = std::make_unique<CallSyntax>();
    const bool is_word = token.is_name("else") || token.is_name("or") || token.is_name("and");
    if (token.is_name("is")) tokens_.fail("tests can not be chained with 'is'");
    if (is_operand && !is_word) call->positional.push_back(parse_postfix(parse_primary()));
    result->call = std::move(call);
  }
  ExpressionRef test = with(std::move(result), operands(std::move(value)));
  if (!negated) return test;
  return with(node(Kind::logical_not), operands(std::move(test)));
}

ExpressionRef ExpressionParser::parse_target(bool with_attributes) {
  auto tuple = node(Kind::tuple);
  std::vector<ExpressionRef> targets;
  bool comma = false;
  while (!tokens_.failed()) {
    targets.push_back(parse_target_name(with_attributes));
    if (!tokens_.take_symbol(",")) break;
    comma = true;
    if (at_tuple_end() || tokens_.current().is_name("in") || tokens_.current().is_symbol("=")) break;
  }
  if (!comma && targets.size() == 1) return std::move(targets[0]);
  return with(std::move(tuple), std::move(targets));
}

ExpressionRef ExpressionParser::parse_target_name(bool with_attributes) {
  const Nesting nesting(*this);
  if (tokens_.take_symbol("(")) {
    ExpressionRef inner = parse_target(with_attributes);
    tokens_.expect_symbol(")");
    return inner;
  }
  if (tokens_.current().kind != TokenKind::name) {
    tokens_.fail(fmt::format("can not assign to {}", tokens_.current().description()));
    return literal(None());
  }
  ExpressionRef name = parse_name();
  if (name->kind != Kind::name) {
    tokens_.fail("can not assign to a constant");
    return name;
  }
  if (!with_attributes || !tokens_.current().is_symbol(".")) return name;
  tokens_.take();
  auto result = node(Kind::attribute);
  result->text = tokens_.expect_name();
  return with(std::move(result), operands(std::move(name)));
}

}  // namespace quern
