// The syntax tree of a chat template. Immutable once parsed; shared by all renderings.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace quern {

struct Expression;
struct Statement;
using ExpressionRef = std::unique_ptr<const Expression>;
using Body = std::vector<std::unique_ptr<const Statement>>;

/// What stands between the parentheses of a call.
struct CallSyntax {
  std::vector<ExpressionRef> positional;
  std::vector<std::pair<std::string, ExpressionRef>> named;
  ExpressionRef star, double_star;  // *x, **x
};

enum class Operator {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct Expression {
  enum class Kind {
    literal,  // `literal`
    name,     // `name`
    tuple,
    list,       // operands: the items
    dict,       // operands: key, value, key, value ...
    attribute,  // operands: object; `text`
    item,       // operands: object, key
    slice,      // operands: object, start, stop, step (the last three may be null)
    call,       // operands: callee; `call`
    filter,
    test,  // operands: value (null in a filter block); `text`, `call`
    logical_not,
    negative,
    positive,
    logical_and,
    logical_or,
    binary,       // operands: left, right; operators[0]
    compare,      // operands: first, second ...; `operators` between them
    concat,       // operands: the parts
    conditional,  // operands: condition, then, else (may be null)
  };

  Kind kind = Kind::literal;
  int line = 1;
  int depth = 1;  // of the tree from here down
  int name = -1;  // index into Program names
  Value literal;
  std::string text;
  std::vector<ExpressionRef> operands;
  std::vector<Operator> operators;
  std::unique_ptr<const CallSyntax> call;
};

/// A macro, or the body of a call block.
struct MacroSyntax {
  std::string name;
  std::vector<std::string> parameter_names;
  std::vector<int> parameters;
  std::vector<ExpressionRef> defaults;  // of the last parameters
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  Body body;
};

struct Statement {
  enum class Kind {
    text,          // `text`
    output,        // `value`
    branch,        // `branches`, then `otherwise`
    loop,          // for `target` in `value` if `condition`: `body`, else `otherwise`
    set,           // `target` = `value`
    set_block,     // `target` = `body`, through the filters in `value` (may be null)
    macro,         // `macro`
    call_block,    // `value` (a call) with `macro` as its caller
    filter_block,  // `value`: filters around `body`
    scope,         // `body` with its own variables; `bindings` first
    leave,         // break
    next,          // continue
  };

  Kind kind = Kind::text;
  int line = 1;
  TextRef text;
  ExpressionRef target;  // name, attribute of a name, or tuple of targets
  ExpressionRef value, condition;
  std::vector<std::pair<ExpressionRef, Body>> branches;
  std::vector<std::pair<ExpressionRef, ExpressionRef>> bindings;
  Body body, otherwise;
  std::unique_ptr<const MacroSyntax> macro;
  bool recursive = false;
};

/// Names that the renderer itself gives a value.
enum ReservedName : int { kLoopName, kCallerName, kVarargsName, kKwargsName, kReservedNames };

struct TemplateProgram {
  std::vector<std::string> names;
  Body body;
};

}  // namespace quern
