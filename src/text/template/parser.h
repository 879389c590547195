// The parser of chat templates: tokens -> syntax tree. Bounded in depth, so that nothing later can recurse without end.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace quern {

Result<TemplateProgram> parse_template(std::string_view source);

/// A token list with a position and the first error. After an error the current token is the end of the template.
class TokenStream {
 public:
  explicit TokenStream(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  const TemplateToken& current() const { return tokens_[at_]; }
  const TemplateToken& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  TemplateToken take();
  bool take_symbol(std::string_view symbol);
  bool take_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  void expect(TemplateToken::Kind kind, std::string_view what);
  std::string expect_name();

  bool failed() const { return failed_; }
  void fail(std::string_view what);
  const std::string& message() const { return message_; }

 private:
  std::vector<TemplateToken> tokens_;
  size_t at_ = 0;
  bool failed_ = false;
  std::string message_;
};

/// Names of variables -> their numbers, and which of the reserved ones the macros around use.
class NameTable {
 public:
  NameTable();
  int number(const std::string& name);
  const std::string& name(int number) const { return names_[static_cast<size_t>(number)]; }
  std::vector<std::string> take() { return std::move(names_); }

  /// A macro begins; `end_macro` says which reserved names its body mentions.
  void begin_macro() { used_.push_back({}); }
  std::vector<bool> end_macro();

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::vector<bool>> used_;
};

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, NameTable& names) : tokens_(tokens), names_(names) {}

  /// One expression, or several with commas between them as a tuple.
  ExpressionRef parse_tuple(bool with_conditional = true);
  ExpressionRef parse_expression();
  ExpressionRef parse_primary();
  /// What follows `filter` in a filter block; the first operand of the innermost filter stays null.
  ExpressionRef parse_filters(ExpressionRef value, bool at_name = false);
  /// name, name.attribute or a tuple of them.
  ExpressionRef parse_target(bool with_attributes);

  /// One more level of nesting while it lives; fails the stream when there are too many.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  ExpressionRef parse_conditional();
  ExpressionRef parse_or();
  ExpressionRef parse_and();
  ExpressionRef parse_not();
  ExpressionRef parse_compare();
  bool take_comparison(Operator& op);
  ExpressionRef parse_sum();
  ExpressionRef parse_concat();
  ExpressionRef parse_product();
  ExpressionRef parse_power();
  ExpressionRef parse_unary(bool with_filters = true);
  ExpressionRef parse_postfix(ExpressionRef value);
  ExpressionRef parse_filters_and_tests(ExpressionRef value);
  ExpressionRef parse_test(ExpressionRef value);
  ExpressionRef parse_subscript(ExpressionRef object);
  ExpressionRef parse_bracket(ExpressionRef object, int line);
  ExpressionRef parse_tuple_of_keys();
  std::unique_ptr<const CallSyntax> parse_call();
  void parse_argument(CallSyntax& call);
  ExpressionRef parse_parentheses();
  ExpressionRef parse_list();
  ExpressionRef parse_dict();
  ExpressionRef parse_strings();
  ExpressionRef parse_name();
  ExpressionRef parse_target_name(bool with_attributes);
  bool at_tuple_end() const;

  std::unique_ptr<Expression> node(Expression::Kind kind) const;
  ExpressionRef with(std::unique_ptr<Expression> expression, std::vector<ExpressionRef> operands);
  ExpressionRef binary(Operator op, ExpressionRef left, ExpressionRef right);
  ExpressionRef literal(Value value);

  TokenStream& tokens_;
  NameTable& names_;
  int nesting_ = 0;
};

}  // namespace quern
