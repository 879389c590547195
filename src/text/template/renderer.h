// The evaluator of chat templates: one rendering, from variables to text. One thread, used once.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/template/ast.h"
#include "text/template/budget.h"
#include "text/template/value.h"

namespace quern {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Renderer;
/// A filter, a method or a global function (self is then undefined). After a failure of the budget the result is
/// meaningless.
using NativeCode = Value (*)(Renderer&, const Value& self, const Arguments&);

/// A native function with the value that it belongs to.
struct Function final : Object {
  Function(NativeCode native, Value owner) : code(native), self(std::move(owner)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  NativeCode code;
  Value self;
};

/// Variables of one block. Macros keep the scope that they were defined in.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> variables;
};

struct Macro final : Object {
  std::string_view type_name() const override { return "Macro"; }
  const MacroSyntax* syntax = nullptr;
  std::shared_ptr<Scope> scope;
};

/// The `loop` of a for statement.
struct Loop final : Object {
  std::string_view type_name() const override { return "LoopContext"; }
  const Statement* statement = nullptr;
  std::shared_ptr<Scope> scope;  // around the statement
  std::vector<Value> items;
  size_t index = 0;
  int depth = 0;
  bool completed = false;                       // some item ran to the end of the body: without one, Jinja takes `else`
  std::optional<std::vector<Value>> last_seen;  // by changed()
};

struct Namespace final : Object {
  std::string_view type_name() const override { return "Namespace"; }
  Dict* attributes = nullptr;
};

struct Cycler final : Object {
  std::string_view type_name() const override { return "Cycler"; }
  std::vector<Value> items;
  size_t next = 0;
};

struct Joiner final : Object {
  std::string_view type_name() const override { return "Joiner"; }
  Value separator;
  bool used = false;
};

class Renderer {
 public:
  Renderer(const TemplateProgram& program, const TemplateLimits& limits, std::optional<int64_t> unix_time);

  Result<std::vector<TextPiece>> run(const Json& variables, const std::vector<std::string>& trusted);

  Budget& budget() { return budget_; }
  Heap& heap() { return heap_; }
  std::optional<int64_t> unix_time() const { return unix_time_; }

  /// Ends the rendering with this reason; returns undefined, for `return fail(...)`.
  Value fail(std::string message);
  /// Ends it with the template's own words.
  Value raise(std::string message);

  Value call(const Value& callee, const Arguments& arguments);
  /// object.name and object[key] as Jinja looks them up.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  /// All items that a `for` would see; takes those of a generator.
  std::vector<Value> items_of(const Value& value);
  /// str(value), without copying when it is a string already.
  TextRef text_of(const Value& value);

 private:
  enum class Flow { go, leave, next, stop };

  void define_globals(const Json& variables, const std::vector<std::string>& trusted);

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_branch(const Statement& statement);
  Flow execute_loop(const Statement& statement, const Value& iterable, int depth);
  Flow execute_items(const Statement& statement, Loop& loop);
  std::vector<Value> matching_items(const Statement& statement, const Value& iterable);
  Flow execute_set_block(const Statement& statement);
  Flow execute_scope(const Statement& statement);
  Flow execute_filter_block(const Statement& statement);
  void execute_call_block(const Statement& statement);
  Value make_macro(const MacroSyntax& syntax);

  template <typename F>
  Text capture(F f);
  Text capture_body(const Body& body);
  Text capture_loop(const Statement& statement, const Value& iterable, int depth);
  void emit(const Text& text);
  void assign(const Expression& target, const Value& value);
  void assign_attribute(const Expression& target, const Value& value);
  void set(int name, Value value);

  Value evaluate(const Expression& expression);
  Value evaluate_name(int name);
  Value evaluate_call(const Expression& expression, const Value* caller = nullptr);
  Value evaluate_filter(const Expression& expression, const Value* input = nullptr);
  Value evaluate_test(const Expression& expression);
  Value evaluate_binary(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_conditional(const Expression& expression);
  Value evaluate_logical(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  std::vector<Value> evaluate_all(const std::vector<ExpressionRef>& expressions);
  Arguments evaluate_arguments(const CallSyntax& call);

  Value call_macro(const Macro& macro, const Arguments& arguments);
  bool bind_parameters(const MacroSyntax& syntax, const Arguments& arguments);
  bool bind_extras(const MacroSyntax& syntax, const Arguments& arguments, std::vector<bool>& used);
  Value call_loop(Loop& loop, const Arguments& arguments);
  std::optional<Value> member(const Value& object, std::string_view name);
  std::optional<Value> loop_member(Loop& loop, std::string_view name);

  const TemplateProgram& program_;
  Budget budget_;  // before all that it counts
  Heap heap_;
  std::optional<int64_t> unix_time_;
  std::vector<std::optional<Value>> globals_;  // by name number
  std::shared_ptr<Scope> scope_;               // nullptr: the template's top level
  Text* out_ = nullptr;
  int line_ = 1;
  int failed_line_ = 0;
  int calls_ = 0;
  bool raised_ = false;
};

/// Arguments of a native function by position or name. Absent ones are nullptr.
class Bound {
 public:
  /// Fails the renderer when there are unknown, repeated or too many arguments, or fewer than `required`.
  Bound(Renderer& renderer, std::string_view function, const Arguments& arguments,
        std::initializer_list<std::string_view> names, size_t required = 0);

  const Value* operator[](size_t index) const { return values_[index]; }
  /// The argument, or undefined when it is absent.
  Value value(size_t index) const { return values_[index] ? *values_[index] : Value(); }
  bool flag(size_t index, bool absent = false) const;
  /// An int; fails the renderer when it is something else.
  int64_t integer(size_t index, int64_t absent) const;
  /// A string; fails the renderer when it is something else.
  TextRef text(size_t index, std::string_view absent = "") const;

 private:
  Renderer& renderer_;
  std::array<const Value*, 8> values_{};
};

/// nullptr when there is none of that name.
NativeCode find_filter(std::string_view name);
NativeCode find_global(std::string_view name);
NativeCode find_method(const Value& object, std::string_view name);
/// Whether Python has a method of that name which the sandbox refuses.
bool is_refused_method(const Value& object, std::string_view name);
using TestCode = bool (*)(Renderer&, const Value& self, const Arguments&);
TestCode find_test(std::string_view name);

}  // namespace quern
