// Calls, attributes and items of a rendering.
#include <algorithm>
#include <fmt/format.h>

#include "text/template/operators.h"
#include "text/template/print.h"
#include "text/template/renderer.h"

namespace quern {

Value Renderer::call(const Value& callee, const Arguments& arguments) {
  const Level level(budget_);
  if (!level || !budget_.spend()) return {};
  if (const auto* function = callee.as<Function>()) return function->code(*this, function->self, arguments);
  if (const auto* macro = callee.as<Macro>()) return call_macro(*macro, arguments);
  if (auto* loop = callee.as<Loop>()) return call_loop(*loop, arguments);
  if (auto* joiner = callee.as<Joiner>()) {
    return std::exchange(joiner->used, true) ? joiner->separator : heap_.text("");
  }
  if (callee.is_undefined()) {
    return fail(callee.undefined().message ? *callee.undefined().message : "the function is undefined");
  }
  return fail(fmt::format("'{}' object is not callable", callee.type_name()));
}

Value Renderer::call_macro(const Macro& macro, const Arguments& arguments) {
  if (++calls_ > budget_.limits().max_depth) fail("macros call each other too deeply");
  const auto outer = scope_;
  const int line = line_;
  scope_ = std::make_shared<Scope>(Scope{macro.scope, {}});
  Text text;
  if (bind_parameters(*macro.syntax, arguments)) {
    text = capture_body(macro.syntax->body);
  }
  scope_ = outer;
  --calls_;
  line_ = line;
  return heap_.text(std::move(text));
}

bool Renderer::bind_parameters(const MacroSyntax& syntax, const Arguments& arguments) {
  const size_t count = syntax.parameters.size();
  std::vector<bool> used(arguments.named.size());
  for (size_t i = 0; i < count && !budget_.failed(); ++i) {
    if (i < arguments.positional.size()) {
      set(syntax.parameters[i], arguments.positional[i]);
      continue;
    }
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& entry) { return entry.first == syntax.parameter_names[i]; });
    const size_t first_default = count - syntax.defaults.size();
    if (named != arguments.named.end()) {
      used[static_cast<size_t>(named - arguments.named.begin())] = true;
      set(syntax.parameters[i], named->second);
    } else if (i >= first_default) {
      set(syntax.parameters[i], evaluate(*syntax.defaults[i - first_default]));
    } else {
      const std::string& name = syntax.parameter_names[i];
      set(syntax.parameters[i], heap_.undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  return bind_extras(syntax, arguments, used) && !budget_.failed();
}

bool Renderer::bind_extras(const MacroSyntax& syntax, const Arguments& arguments, std::vector<bool>& used) {
  const auto& names = syntax.parameter_names;
  if (syntax.uses_caller && std::find(names.begin(), names.end(), "caller") == names.end()) {
    set(kCallerName, heap_.undefined("No caller defined"));
    for (size_t i = 0; i < used.size(); ++i) {
      if (arguments.named[i].first != "caller") continue;
      set(kCallerName, arguments.named[i].second);
      used[i] = true;
    }
  }
  Dict* kwargs = syntax.uses_kwargs ? heap_.dict() : nullptr;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    if (!kwargs) fail(fmt::format("macro '{}' takes no keyword argument '{}'", syntax.name, arguments.named[i].first));
    if (budget_.failed()) return false;
    kwargs->set(heap_.text(arguments.named[i].first), arguments.named[i].second, budget_);
  }
  if (kwargs) set(kKwargsName, kwargs);
  const auto& positional = arguments.positional;
  if (syntax.uses_varargs) {
    const size_t taken = std::min(names.size(), positional.size());
    set(kVarargsName, heap_.tuple({positional.begin() + static_cast<std::ptrdiff_t>(taken), positional.end()}));
  } else if (positional.size() > names.size()) {
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", syntax.name, names.size()));
  }
  return !budget_.failed();
}

Value Renderer::call_loop(Loop& loop, const Arguments& arguments) {
  const Bound bound(*this, "loop", arguments, {"iterable"}, 1);
  if (budget_.failed()) return {};
  if (!loop.statement->recursive) return fail("the loop must be marked 'recursive' to be called");
  if (++calls_ > budget_.limits().max_depth) fail("loops call each other too deeply");
  const auto outer = std::exchange(scope_, loop.scope);
  Text text = capture_loop(*loop.statement, bound.value(0), loop.depth + 1);
  scope_ = outer;
  --calls_;
  return heap_.text(std::move(text));
}

namespace {

std::string missing_attribute(const Value& object, std::string_view name) {
  return fmt::format("'{} object' has no attribute '{}'", object.type_name(), name);
}

}  // namespace

Value Renderer::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) {
    return fail(object.undefined().message ? *object.undefined().message : "the value is undefined");
  }
  if (auto found = member(object, name)) return *found;
  if (const Dict* dict = object.dict(); dict && !name.starts_with("__")) {
    if (const Value* value = dict->find(name)) return *value;
  }
  return heap_.undefined(missing_attribute(object, name));
}

Value Renderer::item(const Value& object, const Value& key) {
  if (object.is_undefined()) {
    return fail(object.undefined().message ? *object.undefined().message : "the value is undefined");
  }
  if (budget_.failed()) return {};
  if (const Dict* dict = object.dict()) {
    const bool hashable = !key.dict() && !(key.sequence() && key.sequence()->kind == ValueList::Kind::list);
    if (const Value* value = hashable ? dict->find(key, budget_) : nullptr) return *value;
  } else if (key.is_integral()) {
    if (auto value = index(*this, object, key.integer())) return *value;
    return heap_.undefined(fmt::format("'{} object' has no element {}", object.type_name(), key.integer()));
  }
  if (!key.is_text()) return heap_.undefined(missing_attribute(object, to_text(key, budget_).bytes));
  if (auto found = member(object, key.text().bytes)) return *found;
  return heap_.undefined(missing_attribute(object, key.text().bytes));
}

std::optional<Value> Renderer::member(const Value& object, std::string_view name) {
  if (const auto* space = object.as<Namespace>()) {
    const Value* value = space->attributes->find(name);
    return value ? std::optional<Value>(*value) : std::nullopt;
  }
  if (auto* loop = object.as<Loop>()) return loop_member(*loop, name);
  if (const ValueList* sequence = object.sequence(); sequence && sequence->is_group) {
    if (name == "grouper") return sequence->items[0];
    if (name == "list") return sequence->items[1];
  }
  if (const auto* cycler = object.as<Cycler>(); cycler && name == "current") return cycler->items[cycler->next];
  if (const auto* macro = object.as<Macro>(); macro && name == "name") return heap_.text(macro->syntax->name);
  if (const NativeCode code = find_method(object, name)) return heap_.make<Function>(code, object);
  if (is_refused_method(object, name)) {
    return heap_.undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, object.type_name()));
  }
  return {};
}

namespace {

Value loop_cycle(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const auto* loop = self.as<Loop>();
  if (arguments.positional.empty()) return renderer.fail("no items for cycling given");
  return arguments.positional[loop->index % arguments.positional.size()];
}

Value loop_changed(Renderer& renderer, const Value& self, const Arguments& arguments) {
  auto* loop = self.as<Loop>();
  const auto& now = arguments.positional;
  bool same = loop->last_seen && loop->last_seen->size() == now.size();
  for (size_t i = 0; same && i < now.size(); ++i) same = equal((*loop->last_seen)[i], now[i], renderer.budget());
  loop->last_seen = now;
  return !same;
}

}  // namespace

std::optional<Value> Renderer::loop_member(Loop& loop, std::string_view name) {
  const size_t size = loop.items.size();
  if (name == "index") return Value::count(loop.index + 1);
  if (name == "index0") return Value::count(loop.index);
  if (name == "first") return loop.index == 0;
  if (name == "last") return loop.index + 1 >= size;
  if (name == "length") return Value::count(size);
  if (name == "revindex") return static_cast<int64_t>(size) - static_cast<int64_t>(loop.index);
  if (name == "revindex0") return static_cast<int64_t>(size) - static_cast<int64_t>(loop.index) - 1;
  if (name == "depth") return int64_t{loop.depth} + 1;
  if (name == "depth0") return int64_t{loop.depth};
  if (name == "previtem") {
    return loop.index > 0 && loop.index <= size ? loop.items[loop.index - 1]
                                                : heap_.undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return loop.index + 1 < size ? loop.items[loop.index + 1] : heap_.undefined("there is no next item");
  }
  Object* self = &loop;
  if (name == "cycle") return heap_.make<Function>(loop_cycle, self);
  if (name == "changed") return heap_.make<Function>(loop_changed, self);
  return {};
}

Bound::Bound(Renderer& renderer, std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t required)
    : renderer_(renderer) {
  if (arguments.positional.size() > names.size()) {
    renderer.fail(fmt::format("{}() takes at most {} arguments", function, names.size()));
    return;
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    const auto position = static_cast<size_t>(found - names.begin());
    if (found == names.end() || values_[position]) {
      renderer.fail(fmt::format("{}() got an unexpected or repeated argument '{}'", function, name));
      return;
    }
    values_[position] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) renderer.fail(fmt::format("{}() misses its argument '{}'", function, names.begin()[i]));
  }
}

bool Bound::flag(size_t index, bool absent) const { return values_[index] ? is_true(*values_[index]) : absent; }

int64_t Bound::integer(size_t index, int64_t absent) const {
  if (!values_[index]) return absent;
  if (values_[index]->is_integral()) return values_[index]->integer();
  renderer_.fail(fmt::format("expected an integer, got '{}'", values_[index]->type_name()));
  return absent;
}

TextRef Bound::text(size_t index, std::string_view absent) const {
  if (values_[index] && values_[index]->is_text()) return values_[index]->text_ref();
  if (values_[index]) renderer_.fail(fmt::format("expected a string, got '{}'", values_[index]->type_name()));
  return std::make_shared<const Text>(std::string(absent));
}

}  // namespace quern
