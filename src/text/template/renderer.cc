#include "text/template/renderer.h"

#include <algorithm>
#include <fmt/format.h>

#include "text/template/operators.h"
#include "text/template/print.h"

namespace quern {

Renderer::Renderer(const TemplateProgram& program, const TemplateLimits& limits, std::optional<int64_t> unix_time)
    : program_(program), budget_(limits), heap_(budget_), unix_time_(unix_time), globals_(program.names.size()) {}

Result<std::vector<TextPiece>> Renderer::run(const Json& variables, const std::vector<std::string>& trusted) {
  define_globals(variables, trusted);
  const Text text = capture([this] { execute(program_.body); });
  if (budget_.failed()) {
    if (raised_) return Error{budget_.message()};
    return Error{fmt::format("chat template line {}: {}", failed_line_ ? failed_line_ : line_, budget_.message())};
  }
  std::vector<TextPiece> pieces;
  pieces.reserve(text.flips.size() + 1);
  text.each_run([&](std::string_view run, bool is_trusted) { pieces.push_back({std::string(run), is_trusted}); });
  return pieces;
}

void Renderer::define_globals(const Json& variables, const std::vector<std::string>& trusted) {
  for (size_t i = 0; i < program_.names.size(); ++i) {
    const std::string& name = program_.names[i];
    if (const Json* variable = variables.find(name)) {
      const bool is_trusted = std::find(trusted.begin(), trusted.end(), name) != trusted.end();
      globals_[i] = heap_.from_json(*variable, is_trusted);
    } else if (const NativeCode code = find_global(name)) {
      globals_[i] = heap_.make<Function>(code, Value());
    }
  }
}

Value Renderer::fail(std::string message) {
  budget_.fail(std::move(message));
  return {};
}

Value Renderer::raise(std::string message) {
  if (!budget_.failed()) raised_ = true;
  return fail(std::move(message));
}

template <typename F>
Text Renderer::capture(F f) {
  Text text;
  Text* outer = std::exchange(out_, &text);
  f();
  out_ = outer;
  budget_.release(text.size() + text.flips.size() * sizeof(TextPiece));
  return text;
}

Text Renderer::capture_body(const Body& body) {
  return capture([&] { execute(body); });
}

Text Renderer::capture_loop(const Statement& statement, const Value& iterable, int depth) {
  return capture([&] { execute_loop(statement, iterable, depth); });
}

void Renderer::emit(const Text& text) {
  if (!budget_.spend_bytes(text.size()) || !budget_.allows_text(static_cast<int64_t>(out_->size() + text.size()))) {
    return;
  }
  const size_t flips = out_->flips.size();
  out_->append(text);
  budget_.hold(text.size() + (out_->flips.size() - flips) * sizeof(TextPiece));
}

Renderer::Flow Renderer::execute(const Body& body) {
  const Level level(budget_);
  for (const auto& statement : body) {
    line_ = statement->line;
    const Flow flow = budget_.spend() ? execute(*statement) : Flow::stop;
    if (budget_.failed()) {
      if (!failed_line_) failed_line_ = line_;
      return Flow::stop;
    }
    if (flow != Flow::go) return flow;
  }
  return Flow::go;
}

Renderer::Flow Renderer::execute(const Statement& statement) {
  using Kind = Statement::Kind;
  switch (statement.kind) {
    case Kind::text: emit(*statement.text); return Flow::go;
    case Kind::output: emit(*text_of(evaluate(*statement.value))); return Flow::go;
    case Kind::branch: return execute_branch(statement);
    case Kind::loop: return execute_loop(statement, evaluate(*statement.value), 0);
    case Kind::set: assign(*statement.target, evaluate(*statement.value)); return Flow::go;
    case Kind::set_block: return execute_set_block(statement);
    case Kind::macro: assign(*statement.target, make_macro(*statement.macro)); return Flow::go;
    case Kind::call_block: execute_call_block(statement); return Flow::go;
    case Kind::filter_block: return execute_filter_block(statement);
    case Kind::scope: return execute_scope(statement);
    case Kind::leave: return Flow::leave;
    case Kind::next: return Flow::next;
  }
  return Flow::stop;
}

Renderer::Flow Renderer::execute_branch(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    const bool taken = is_true(evaluate(*condition));
    if (budget_.failed()) return Flow::stop;
    if (taken) return execute(body);
  }
  return execute(statement.otherwise);
}

std::vector<Value> Renderer::matching_items(const Statement& statement, const Value& iterable) {
  std::vector<Value> items = items_of(iterable);
  if (!statement.condition) return items;
  std::vector<Value> result;
  auto outer = scope_;
  for (const Value& item : items) {
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    assign(*statement.target, item);
    const bool matches = is_true(evaluate(*statement.condition));
    if (!budget_.spend()) break;
    if (matches) result.push_back(item);
  }
  scope_ = outer;
  return result;
}

Renderer::Flow Renderer::execute_loop(const Statement& statement, const Value& iterable, int depth) {
  Loop* loop = heap_.make<Loop>();
  loop->statement = &statement;
  loop->scope = scope_;
  loop->depth = depth;
  loop->items = matching_items(statement, iterable);
  if (budget_.failed()) return Flow::stop;
  const size_t bytes = loop->items.size() * sizeof(Value);
  budget_.hold(bytes);
  const auto outer = scope_;
  const Flow flow = execute_items(statement, *loop);
  scope_ = outer;
  if (flow == Flow::go && !loop->completed) {
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    execute(statement.otherwise);
    scope_ = outer;
  }
  loop->scope = nullptr;
  loop->items = {};
  budget_.release(bytes);
  return budget_.failed() ? Flow::stop : Flow::go;
}

Renderer::Flow Renderer::execute_items(const Statement& statement, Loop& loop) {
  for (loop.index = 0; loop.index < loop.items.size(); ++loop.index) {
    // A scope that no macro keeps is used again.
    if (loop.index > 0 && scope_.use_count() == 1) {
      scope_->variables.clear();
    } else {
      scope_ = std::make_shared<Scope>(Scope{loop.scope, {}});
    }
    set(kLoopName, static_cast<Object*>(&loop));
    assign(*statement.target, loop.items[loop.index]);
    const Flow flow = execute(statement.body);
    if (flow == Flow::stop || budget_.failed()) return Flow::stop;
    if (flow == Flow::leave) break;
    loop.completed = loop.completed || flow == Flow::go;
  }
  return Flow::go;
}

Renderer::Flow Renderer::execute_set_block(const Statement& statement) {
  Flow flow = Flow::go;
  const auto outer = scope_;
  Text text = capture([&] {
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    flow = execute(statement.body);
  });
  scope_ = outer;
  Value value = heap_.text(std::move(text));
  if (statement.value) value = evaluate_filter(*statement.value, &value);
  if (flow == Flow::go) assign(*statement.target, value);
  return flow;
}

Renderer::Flow Renderer::execute_filter_block(const Statement& statement) {
  Flow flow = Flow::go;
  const auto outer = scope_;
  Text text = capture([&] {
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    flow = execute(statement.body);
  });
  scope_ = outer;
  const Value value = heap_.text(std::move(text));
  if (flow == Flow::go) emit(*text_of(evaluate_filter(*statement.value, &value)));
  return flow;
}

Renderer::Flow Renderer::execute_scope(const Statement& statement) {
  const auto outer = scope_;
  const auto inner = std::make_shared<Scope>(Scope{outer, {}});
  for (const auto& [target, expression] : statement.bindings) {
    const Value value = evaluate(*expression);  // sees the variables outside only
    scope_ = inner;
    assign(*target, value);
    scope_ = outer;
  }
  scope_ = inner;
  const Flow flow = execute(statement.body);
  scope_ = outer;
  return flow;
}

Value Renderer::make_macro(const MacroSyntax& syntax) {
  Macro* macro = heap_.make<Macro>();
  macro->syntax = &syntax;
  macro->scope = scope_;
  return static_cast<Object*>(macro);
}

void Renderer::execute_call_block(const Statement& statement) {
  const Value caller = make_macro(*statement.macro);
  emit(*text_of(evaluate_call(*statement.value, &caller)));
}

void Renderer::set(int name, Value value) {
  if (!scope_) {
    globals_[static_cast<size_t>(name)] = std::move(value);
    return;
  }
  for (auto& [known, old] : scope_->variables) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  scope_->variables.emplace_back(name, std::move(value));
}

void Renderer::assign(const Expression& target, const Value& value) {
  if (budget_.failed()) return;
  if (target.kind == Expression::Kind::name) return set(target.name, value);
  if (target.kind == Expression::Kind::attribute) return assign_attribute(target, value);
  const std::vector<Value> items = items_of(value);
  if (!budget_.failed() && items.size() != target.operands.size()) {
    fail(fmt::format("can not unpack {} values into {} names", items.size(), target.operands.size()));
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.operands[i], items[i]);
}

void Renderer::assign_attribute(const Expression& target, const Value& value) {
  const Value owner = evaluate_name(target.operands[0]->name);
  if (const auto* space = owner.as<Namespace>()) {
    space->attributes->set(heap_.text(target.text), value, budget_);
  } else {
    fail("cannot assign attribute on non-namespace object");
  }
}

std::vector<Value> Renderer::items_of(const Value& value) {
  std::vector<Value> result;
  if (value.is_undefined()) return result;
  if (ValueList* sequence = value.sequence()) {
    const size_t begin = sequence->next;
    if (sequence->kind == ValueList::Kind::generator) sequence->next = sequence->items.size();
    budget_.spend(static_cast<int64_t>(sequence->items.size() - begin) / 8);
    result.assign(sequence->items.begin() + static_cast<std::ptrdiff_t>(begin), sequence->items.end());
  } else if (const Dict* dict = value.dict()) {
    for (const auto& [key, member] : dict->entries) result.push_back(key);
  } else if (value.is_text()) {
    const Text& text = value.text();
    for (size_t i = 0; i < text.size() && !budget_.failed();) {
      const size_t end = i + character_size(text.bytes, i);
      result.push_back(heap_.text(text.slice(i, end)));
      i = end;
    }
  } else {
    fail(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  return result;
}

TextRef Renderer::text_of(const Value& value) {
  if (value.is_text()) return value.text_ref();
  return heap_.text(to_text(value, budget_)).text_ref();
}

}  // namespace quern
