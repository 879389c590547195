// Methods of dicts, lists and other containers, and which names the sandbox refuses. Those of strings have a file of
// their own.
#include <algorithm>
#include <fmt/format.h>
#include <unordered_map>

#include "text/template/operators.h"
#include "text/template/string_methods.h"

namespace quern {

namespace {

using Table = std::unordered_map<std::string_view, NativeCode>;

Value dict_items(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "items", arguments, {});
  std::vector<Value> items;
  items.reserve(self.dict()->entries.size());
  for (const auto& [key, value] : self.dict()->entries) items.push_back(renderer.heap().tuple({key, value}));
  return renderer.heap().list(std::move(items), ValueList::Kind::items);
}

Value dict_keys(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "keys", arguments, {});
  return renderer.heap().list(renderer.items_of(self), ValueList::Kind::keys);
}

Value dict_values(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "values", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries) items.push_back(value);
  return renderer.heap().list(std::move(items), ValueList::Kind::values);
}

Value dict_get(Renderer& renderer, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) return renderer.fail("get() takes no keyword arguments");
  const Bound bound(renderer, "get", arguments, {"key", "default"}, 1);
  if (renderer.budget().failed()) return {};
  if (const Value* value = self.dict()->find(*bound[0], renderer.budget())) return *value;
  return bound[1] ? *bound[1] : Value(None());
}

Value dict_copy(Renderer& renderer, const Value& self, const Arguments&) {
  Dict* result = renderer.heap().dict();
  for (const auto& [key, value] : self.dict()->entries) result->set(key, value, renderer.budget());
  return result;
}

Value list_append(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "append", arguments, {"object"}, 1);
  renderer.heap().append(*self.sequence(), bound.value(0));
  return None();
}

Value list_pop(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "pop", arguments, {"index"});
  auto& items = self.sequence()->items;
  const auto size = static_cast<int64_t>(items.size());
  int64_t position = bound.integer(0, -1);
  if (position < 0) position += size;
  if (position < 0 || position >= size) return renderer.fail("pop index out of range");
  if (!renderer.budget().spend((size - position) / 8)) return {};
  Value result = items[static_cast<size_t>(position)];
  items.erase(items.begin() + position);
  return result;
}

Value list_copy(Renderer& renderer, const Value& self, const Arguments&) {
  return renderer.heap().list(self.sequence()->items);
}

Value list_count(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "count", arguments, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.sequence()->items) {
    if (renderer.budget().failed()) break;
    if (equal(item, bound.value(0), renderer.budget())) ++count;
  }
  return count;
}

Value list_index(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "index", arguments, {"value"}, 1);
  const auto& items = self.sequence()->items;
  for (size_t i = 0; i < items.size() && !renderer.budget().failed(); ++i) {
    if (equal(items[i], bound.value(0), renderer.budget())) return Value::count(i);
  }
  return renderer.fail("the value is not in the list");
}

Value cycler_next(Renderer&, const Value& self, const Arguments&) {
  auto* cycler = self.as<Cycler>();
  const Value result = cycler->items[cycler->next];
  cycler->next = (cycler->next + 1) % cycler->items.size();
  return result;
}

Value cycler_reset(Renderer&, const Value& self, const Arguments&) {
  self.as<Cycler>()->next = 0;
  return None();
}

NativeCode look_up(const Table& table, std::string_view name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

NativeCode find_method(const Value& object, std::string_view name) {
  static const Table kDict = {
      {"copy", dict_copy}, {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}};
  // Jinja's immutable sandbox refuses append and pop too, but published templates collect values with them.
  static const Table kList = {
      {"append", list_append}, {"copy", list_copy}, {"count", list_count}, {"index", list_index}, {"pop", list_pop}};
  static const Table kTuple = {{"count", list_count}, {"index", list_index}};
  static const Table kCycler = {{"next", cycler_next}, {"reset", cycler_reset}};
  if (object.is_text()) return find_string_method(name);
  if (object.dict()) return look_up(kDict, name);
  if (const ValueList* sequence = object.sequence()) {
    if (sequence->kind == ValueList::Kind::list) return look_up(kList, name);
    if (sequence->kind == ValueList::Kind::tuple) return look_up(kTuple, name);
  }
  return object.as<Cycler>() ? look_up(kCycler, name) : nullptr;
}

bool is_refused_method(const Value& object, std::string_view name) {
  static constexpr std::string_view kList[] = {"clear", "extend", "insert", "remove", "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (name.starts_with("__")) return true;
  if (object.dict()) return among(kDict);
  return object.sequence() && object.sequence()->kind == ValueList::Kind::list && among(kList);
}

}  // namespace quern
