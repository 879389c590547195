#include "text/template/parser.h"

#include <fmt/format.h>
#include <initializer_list>

namespace quern {

namespace {
using TokenKind = TemplateToken::Kind;
}

TemplateToken TokenStream::take() {
  TemplateToken token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::take_symbol(std::string_view symbol) {
  const bool found = current().is_symbol(symbol);
  if (found) take();
  return found;
}

bool TokenStream::take_name(std::string_view name) {
  const bool found = current().is_name(name);
  if (found) take();
  return found;
}

void TokenStream::expect_symbol(std::string_view symbol) {
  if (!take_symbol(symbol)) fail(fmt::format("expected '{}', got {}", symbol, current().description()));
}

void TokenStream::expect(TemplateToken::Kind kind, std::string_view what) {
  if (current().kind == kind) {
    take();
  } else {
    fail(fmt::format("expected {}, got {}", what, current().description()));
  }
}

std::string TokenStream::expect_name() {
  std::string name = current().text;
  expect(TokenKind::name, "a name");
  return name;
}

void TokenStream::fail(std::string_view what) {
  if (failed_) return;
  failed_ = true;
  message_ = fmt::format("chat template line {}: {}", current().line, what);
  at_ = tokens_.size() - 1;
}

NameTable::NameTable() {
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) number(name);
}

int NameTable::number(const std::string& name) {
  const auto [found, added] = numbers_.emplace(name, static_cast<int>(names_.size()));
  if (added) names_.push_back(name);
  if (found->second < kReservedNames) {
    for (std::vector<bool>& used : used_) {
      used.resize(kReservedNames);
      used[static_cast<size_t>(found->second)] = true;
    }
  }
  return found->second;
}

std::vector<bool> NameTable::end_macro() {
  std::vector<bool> used = std::move(used_.back());
  used_.pop_back();
  used.resize(kReservedNames);
  return used;
}

namespace {

using Kind = Statement::Kind;
using EndTags = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(TokenStream& tokens) : tokens_(tokens), expressions_(tokens, names_) {}

  TemplateProgram run() {
    TemplateProgram program;
    program.body = parse_body({});
    program.names = names_.take();
    return program;
  }

 private:
  std::unique_ptr<Statement> node(Kind kind) const {
    auto result = std::make_unique<Statement>();
    result->kind = kind;
    result->line = tokens_.current().line;
    return result;
  }

  /// Statements up to a block that starts with one of `ends`, which becomes the current token.
  Body parse_body(EndTags ends) {
    const ExpressionParser::Nesting nesting(expressions_);
    Body body;
    while (!tokens_.failed() && tokens_.current().kind != TokenKind::end) {
      if (tokens_.current().kind == TokenKind::data) {
        auto text = node(Kind::text);
        text->text = std::make_shared<const Text>(tokens_.take().text);
        body.push_back(std::move(text));
      } else if (tokens_.current().kind == TokenKind::output_begin) {
        body.push_back(parse_output());
      } else {
        tokens_.expect(TokenKind::block_begin, "'{%'");
        for (const std::string_view end : ends) {
          if (tokens_.current().is_name(end)) return body;
        }
        parse_statement(body);
        tokens_.expect(TokenKind::block_end, "'%}'");
      }
    }
    if (ends.size() > 0)
      tokens_.fail(fmt::format("the template ends where '{{% {} %}}' is missing", *(ends.end() - 1)));
    return body;
  }

  /// The body of a block after its opening words; takes the end tag's name too.
  Body parse_block(std::string_view end) {
    tokens_.expect(TokenKind::block_end, "'%}'");
    Body body = parse_body({end});
    tokens_.take_name(end);
    return body;
  }

  std::unique_ptr<const Statement> parse_output() {
    auto output = node(Kind::output);
    tokens_.take();
    output->value = expressions_.parse_tuple();
    tokens_.expect(TokenKind::output_end, "'}}'");
    return output;
  }

  void parse_statement(Body& body) {
    const TemplateToken word = tokens_.current();
    const std::string name = tokens_.expect_name();
    if (name == "if") return body.push_back(parse_if());
    if (name == "for") return body.push_back(parse_for());
    if (name == "set") return body.push_back(parse_set());
    if (name == "macro") return body.push_back(parse_macro());
    if (name == "call") return body.push_back(parse_call_block());
    if (name == "filter") return body.push_back(parse_filter_block());
    if (name == "with") return body.push_back(parse_with());
    if (name == "generation") return body.push_back(parse_generation());
    if (name == "print") return parse_print(body);
    if (name == "break" || name == "continue") return body.push_back(parse_jump(name == "break"));
    if (name == "include" || name == "import" || name == "from" || name == "extends") {
      return tokens_.fail(fmt::format("'{}' is not supported: a chat template is a single file", name));
    }
    tokens_.fail(fmt::format("unknown tag '{}'", word.text));
  }

  std::unique_ptr<const Statement> parse_if() {
    auto result = node(Kind::branch);
    while (!tokens_.failed()) {
      ExpressionRef condition = expressions_.parse_tuple(false);
      tokens_.expect(TokenKind::block_end, "'%}'");
      result->branches.emplace_back(std::move(condition), parse_body({"elif", "else", "endif"}));
      if (tokens_.take_name("elif")) continue;
      if (tokens_.take_name("else")) {
        result->otherwise = parse_block("endif");
      } else {
        tokens_.take_name("endif");
      }
      break;
    }
    return result;
  }

  std::unique_ptr<const Statement> parse_for() {
    auto result = node(Kind::loop);
    result->target = expressions_.parse_target(false);
    if (!tokens_.take_name("in")) tokens_.fail(fmt::format("expected 'in', got {}", tokens_.current().description()));
    result->value = expressions_.parse_tuple(false);
    if (tokens_.take_name("if")) result->condition = expressions_.parse_expression();
    result->recursive = tokens_.take_name("recursive");
    tokens_.expect(TokenKind::block_end, "'%}'");
    ++loops_;
    result->body = parse_body({"else", "endfor"});
    --loops_;
    if (tokens_.take_name("else")) {
      result->otherwise = parse_block("endfor");
    } else {
      tokens_.take_name("endfor");
    }
    return result;
  }

  std::unique_ptr<const Statement> parse_set() {
    auto result = node(Kind::set);
    result->target = expressions_.parse_target(true);
    if (tokens_.take_symbol("=")) {
      result->value = expressions_.parse_tuple();
      return result;
    }
    result->kind = Kind::set_block;
    result->value = expressions_.parse_filters(nullptr);
    result->body = parse_block("endset");
    return result;
  }

  void parse_parameters(MacroSyntax& macro) {
    tokens_.expect_symbol("(");
    while (!tokens_.failed() && !tokens_.current().is_symbol(")")) {
      macro.parameter_names.push_back(tokens_.expect_name());
      macro.parameters.push_back(names_.number(macro.parameter_names.back()));
      if (tokens_.take_symbol("=")) {
        macro.defaults.push_back(expressions_.parse_expression());
      } else if (!macro.defaults.empty()) {
        tokens_.fail("a parameter without a default follows one with a default");
      }
      if (!tokens_.take_symbol(",")) break;
    }
    tokens_.expect_symbol(")");
  }

  /// The body of a macro, and which of the reserved names it uses.
  void parse_macro_body(MacroSyntax& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    names_.begin_macro();
    macro.body = parse_block(end);
    const std::vector<bool> used = names_.end_macro();
    macro.uses_caller = used[kCallerName];
    macro.uses_varargs = used[kVarargsName];
    macro.uses_kwargs = used[kKwargsName];
    loops_ = loops;
  }

  std::unique_ptr<const Statement> parse_macro() {
    auto result = node(Kind::macro);
    auto macro = std::make_unique<MacroSyntax>();
    result->target = expressions_.parse_target(false);
    if (result->target->kind != Expression::Kind::name) {
      tokens_.fail("a macro needs a name");
    } else {
      macro->name = names_.name(result->target->name);
    }
    parse_parameters(*macro);
    parse_macro_body(*macro, "endmacro");
    result->macro = std::move(macro);
    return result;
  }

  std::unique_ptr<const Statement> parse_call_block() {
    auto result = node(Kind::call_block);
    auto macro = std::make_unique<MacroSyntax>();
    macro->name = "caller";
    if (tokens_.current().is_symbol("(")) parse_parameters(*macro);
    result->value = expressions_.parse_expression();
    if (result->value->kind != Expression::Kind::call) tokens_.fail("a call block needs a call");
    parse_macro_body(*macro, "endcall");
    result->macro = std::move(macro);
    return result;
  }

  std::unique_ptr<const Statement> parse_filter_block() {
    auto result = node(Kind::filter_block);
    result->value = expressions_.parse_filters(nullptr, true);
    result->body = parse_block("endfilter");
    return result;
  }

  std::unique_ptr<const Statement> parse_with() {
    auto result = node(Kind::scope);
    while (!tokens_.failed() && tokens_.current().kind != TokenKind::block_end) {
      ExpressionRef target = expressions_.parse_target(false);
      tokens_.expect_symbol("=");
      result->bindings.emplace_back(std::move(target), expressions_.parse_expression());
      if (!tokens_.take_symbol(",")) break;
    }
    result->body = parse_block("endwith");
    return result;
  }

  /// `transformers` marks the assistant's text by this tag; only its body counts here.
  std::unique_ptr<const Statement> parse_generation() {
    auto result = node(Kind::scope);
    result->body = parse_block("endgeneration");
    return result;
  }

  void parse_print(Body& body) {
    while (!tokens_.failed() && tokens_.current().kind != TokenKind::block_end) {
      auto output = node(Kind::output);
      output->value = expressions_.parse_expression();
      body.push_back(std::move(output));
      if (!tokens_.take_symbol(",")) break;
    }
  }

  std::unique_ptr<const Statement> parse_jump(bool leave) {
    if (loops_ == 0) tokens_.fail("'break' and 'continue' belong into a loop");
    return node(leave ? Kind::leave : Kind::next);
  }

  TokenStream& tokens_;
  NameTable names_;
  ExpressionParser expressions_;
  int loops_ = 0;  // around the current statement, inside the same macro
};

}  // namespace

Result<TemplateProgram> parse_template(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<TemplateToken> list, lex_template(source));
  TokenStream tokens(std::move(list));
  TemplateProgram program = StatementParser(tokens).run();
  if (tokens.failed()) return Error{tokens.message()};
  return program;
}

}  // namespace quern
