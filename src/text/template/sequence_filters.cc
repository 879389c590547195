// Filters on sequences and mappings.
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <unordered_map>

#include "text/template/filters.h"
#include "text/template/operators.h"

namespace quern {

namespace {

Value lower_if_text(Renderer& renderer, const Value& value) {
  return value.is_text() ? renderer.heap().text(change_case(value.text(), Case::lower)) : value;
}

/// Follows "a.b.0" from a value.
Value follow(Renderer& renderer, Value value, const Value& path) {
  if (!path.is_text()) return renderer.item(value, path);
  std::string_view rest = path.text().bytes;
  while (!renderer.budget().failed()) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    int64_t number = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool is_number = !part.empty() && parsed.ec == std::errc() && parsed.ptr == part.data() + part.size();
    value = renderer.item(value, is_number ? Value(number) : renderer.heap().text(std::string(part)));
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return value;
}

/// What a filter looks at in each item: the item or an attribute of it, without case when wanted.
class Key {
 public:
  Key(Renderer& renderer, const Value* attribute, bool case_sensitive, const Value* fallback = nullptr)
      : renderer_(renderer), attribute_(attribute), case_sensitive_(case_sensitive), fallback_(fallback) {
    if (attribute_ && attribute_->is_none()) attribute_ = nullptr;
  }

  Value operator()(const Value& item) const {
    const Value key = exact(item);
    return case_sensitive_ ? key : lower_if_text(renderer_, key);
  }

  Value exact(const Value& item) const {
    Value key = attribute_ ? follow(renderer_, item, *attribute_) : item;
    return key.is_undefined() && fallback_ && !fallback_->is_none() ? *fallback_ : key;
  }

 private:
  Renderer& renderer_;
  const Value* attribute_;
  bool case_sensitive_;
  const Value* fallback_;
};

std::vector<Value> sorted_by(Renderer& renderer, const std::vector<Value>& items, const std::vector<Value>& keys,
                             bool reverse) {
  const auto positions = sorted_positions(items.size(), [&](size_t a, size_t b) {
    if (renderer.budget().failed()) return false;
    return reverse ? order(keys[a], keys[b], renderer.budget()) > 0 : order(keys[a], keys[b], renderer.budget()) < 0;
  });
  std::vector<Value> result;
  result.reserve(items.size());
  for (const size_t position : positions) result.push_back(items[position]);
  return result;
}

Value filter_sort(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> paths;
  if (bound[2] && bound[2]->is_text()) {
    const std::string& all = bound[2]->text().bytes;
    for (size_t begin = 0; begin <= all.size();) {
      const size_t end = std::min(all.find(',', begin), all.size());
      paths.push_back(renderer.heap().text(all.substr(begin, end - begin)));
      begin = end + 1;
    }
  } else {
    paths.push_back(bound[2] ? *bound[2] : Value(None()));
  }
  const std::vector<Value> items = renderer.items_of(self);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const Value& path : paths) key.push_back(Key(renderer, &path, bound.flag(1))(item));
    keys.push_back(key.size() == 1 ? key[0] : renderer.heap().tuple(std::move(key)));
  }
  return renderer.heap().list(sorted_by(renderer, items, keys, bound.flag(0)));
}

std::vector<Value> pairs_of(Renderer& renderer, const Dict& dict) {
  std::vector<Value> result;
  result.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) result.push_back(renderer.heap().tuple({key, value}));
  return result;
}

Value filter_dictsort(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const TextRef by = bound.text(1, "key");
  if (by->bytes != "key" && by->bytes != "value") return renderer.fail("dictsort sorts by 'key' or by 'value'");
  if (!self.dict()) return renderer.fail(fmt::format("dictsort needs a mapping, not '{}'", self.type_name()));
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict()->entries) {
    const Value& shown = by->bytes == "key" ? key : value;
    keys.push_back(bound.flag(0) ? shown : lower_if_text(renderer, shown));
  }
  return renderer.heap().list(sorted_by(renderer, pairs_of(renderer, *self.dict()), keys, bound.flag(2)));
}

Value filter_items(Renderer& renderer, const Value& self, const Arguments&) {
  if (self.is_undefined()) return renderer.heap().generator({});
  if (!self.dict()) return renderer.fail("can only get item pairs from a mapping");
  return renderer.heap().generator(pairs_of(renderer, *self.dict()));
}

Value filter_unique(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "unique", arguments, {"case_sensitive", "attribute"});
  const Key key(renderer, bound[1], bound.flag(0));
  Dict* seen = renderer.heap().dict();
  std::vector<Value> result;
  for (const Value& item : renderer.items_of(self)) {
    const size_t before = seen->entries.size();
    seen->set(key(item), None(), renderer.budget());
    if (renderer.budget().failed()) return {};
    if (seen->entries.size() > before) result.push_back(item);
  }
  return renderer.heap().generator(std::move(result));
}

Value extreme(Renderer& renderer, const Value& self, const Arguments& arguments, bool largest) {
  const Bound bound(renderer, largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Key key(renderer, bound[1], bound.flag(0));
  const std::vector<Value> items = renderer.items_of(self);
  if (items.empty()) return renderer.heap().undefined("No aggregated item, sequence was empty.");
  Value best = items[0];
  Value best_key = key(best);
  for (size_t i = 1; i < items.size() && !renderer.budget().failed(); ++i) {
    Value candidate = key(items[i]);
    const auto compared = order(candidate, best_key, renderer.budget());
    if (largest ? compared > 0 : compared < 0) {
      best = items[i];
      best_key = std::move(candidate);
    }
  }
  return best;
}

Value filter_min(Renderer& renderer, const Value& self, const Arguments& arguments) {
  return extreme(renderer, self, arguments, false);
}
Value filter_max(Renderer& renderer, const Value& self, const Arguments& arguments) {
  return extreme(renderer, self, arguments, true);
}

Value filter_sum(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "sum", arguments, {"attribute", "start"});
  const Key key(renderer, bound[0], true);
  Value sum = bound[1] ? *bound[1] : Value(int64_t{0});
  if (sum.is_text()) return renderer.fail("sum can not add strings");
  for (const Value& item : renderer.items_of(self)) {
    sum = apply(renderer, Operator::add, sum, key(item));
    if (renderer.budget().failed()) return {};
  }
  return sum;
}

Value filter_groupby(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  if (renderer.budget().failed()) return {};
  const Key key(renderer, bound[0], bound.flag(2), bound[1]);
  std::vector<Value> keys;
  const std::vector<Value> items = renderer.items_of(self);
  for (const Value& item : items) keys.push_back(key(item));
  std::vector<Value> result;
  Value last;
  for (const Value& item : sorted_by(renderer, items, keys, false)) {
    const Value own = key(item);
    if (renderer.budget().failed()) return {};
    if (result.empty() || !equal(last, own, renderer.budget())) {
      const Value group = renderer.heap().tuple({key.exact(item), renderer.heap().list({})});
      group.sequence()->is_group = true;
      result.push_back(group);
      last = own;
    }
    renderer.heap().append(*result.back().sequence()->items[1].sequence(), item);
  }
  return renderer.heap().list(std::move(result));
}

Value filter_join(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "join", arguments, {"d", "attribute"});
  std::vector<Value> items = renderer.items_of(self);
  const Key key(renderer, bound[1], true);
  for (Value& item : items) item = renderer.text_of(key(item));
  return join_items(renderer, bound[0] ? *renderer.text_of(*bound[0]) : Text(), items);
}

Value filter_length(Renderer& renderer, const Value& self, const Arguments&) {
  if (self.is_text()) renderer.budget().spend_bytes(self.text().size());
  if (const auto size = length(self)) return *size;
  return renderer.fail(fmt::format("object of type '{}' has no len()", self.type_name()));
}

Value filter_list(Renderer& renderer, const Value& self, const Arguments&) {
  return renderer.heap().list(renderer.items_of(self));
}

Value filter_first(Renderer& renderer, const Value& self, const Arguments&) {
  if (ValueList* sequence = self.sequence()) {
    if (sequence->next >= sequence->items.size()) {
      return renderer.heap().undefined("No first item, sequence was empty.");
    }
    return sequence->items[sequence->kind == ValueList::Kind::generator ? sequence->next++ : 0];
  }
  if (self.is_text() && !self.text().empty()) return *index(renderer, self, 0);
  const std::vector<Value> items = renderer.items_of(self);
  return items.empty() ? renderer.heap().undefined("No first item, sequence was empty.") : items[0];
}

Value filter_last(Renderer& renderer, const Value& self, const Arguments&) {
  const ValueList* sequence = self.sequence();
  if (sequence && sequence->kind == ValueList::Kind::generator)
    return renderer.fail("'generator' object is not reversible");
  if (self.is_text() && !self.text().empty()) return *index(renderer, self, -1);
  const std::vector<Value> items = renderer.items_of(self);
  return items.empty() ? renderer.heap().undefined("No last item, sequence was empty.") : items.back();
}

Value filter_reverse(Renderer& renderer, const Value& self, const Arguments&) {
  if (self.is_text()) return slice(renderer, self, None(), None(), int64_t{-1});
  std::vector<Value> items = renderer.items_of(self);
  std::reverse(items.begin(), items.end());
  return renderer.heap().generator(std::move(items));
}

Value filter_batch(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t count = bound.integer(0, 1);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : renderer.items_of(self)) {
    if (static_cast<int64_t>(row.size()) == count) rows.push_back(renderer.heap().list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    const bool fill = bound[1] && !bound[1]->is_none();
    while (fill && static_cast<int64_t>(row.size()) < count && renderer.budget().spend()) row.push_back(*bound[1]);
    rows.push_back(renderer.heap().list(std::move(row)));
  }
  return renderer.heap().generator(std::move(rows));
}

Value filter_slice(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t slices = bound.integer(0, 1);
  if (slices <= 0) return renderer.fail("slice needs a positive number");
  const std::vector<Value> items = renderer.items_of(self);
  const auto size = static_cast<int64_t>(items.size());
  const bool fill = bound[1] && !bound[1]->is_none();
  std::vector<Value> result;
  auto next = items.begin();
  for (int64_t i = 0; i < slices && renderer.budget().spend(); ++i) {
    const bool longer = i < size % slices;
    const auto end = next + static_cast<std::ptrdiff_t>(size / slices + (longer ? 1 : 0));
    std::vector<Value> part(next, end);
    if (fill && !longer) part.push_back(*bound[1]);
    result.push_back(renderer.heap().list(std::move(part)));
    next = end;
  }
  return renderer.heap().generator(std::move(result));
}

/// The arguments from `first` on, for the filter or test that map and select call.
Arguments rest_of(const Arguments& arguments, size_t first) {
  Arguments rest;
  if (arguments.positional.size() > first) {
    rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(first),
                           arguments.positional.end());
  }
  rest.named = arguments.named;
  return rest;
}

Value filter_map(Renderer& renderer, const Value& self, const Arguments& arguments) {
  if (!is_true(self)) return renderer.heap().generator({});  // none too, as in Jinja
  std::vector<Value> items = renderer.items_of(self);
  if (arguments.positional.empty()) {
    const Bound bound(renderer, "map", arguments, {"attribute", "default"}, 1);
    if (renderer.budget().failed()) return {};
    const Key key(renderer, bound[0], true, bound[1]);
    for (Value& item : items) item = key(item);
    return renderer.heap().generator(std::move(items));
  }
  const TextRef name = renderer.text_of(arguments.positional[0]);
  const NativeCode code = find_filter(name->bytes);
  if (!code) return renderer.fail(fmt::format("no filter named '{}'", name->bytes));
  const Level level(renderer.budget());
  const Arguments rest = rest_of(arguments, 1);
  for (Value& item : items) {
    if (!renderer.budget().spend()) return {};
    item = code(renderer, item, rest);
  }
  return renderer.heap().generator(std::move(items));
}

/// select, reject and their attribute forms: keeps the items whose test says `wanted`.
template <bool wanted, bool by_attribute>
Value filter_select(Renderer& renderer, const Value& self, const Arguments& arguments) {
  if (!is_true(self)) return renderer.heap().generator({});
  const size_t first = by_attribute ? 1 : 0;
  if (arguments.positional.size() < first) return renderer.fail("missing parameter for attribute name");
  const Key key(renderer, by_attribute ? &arguments.positional[0] : nullptr, true);
  TestCode test = nullptr;
  if (arguments.positional.size() > first) {
    const TextRef name = renderer.text_of(arguments.positional[first]);
    test = find_test(name->bytes);
    if (!test) return renderer.fail(fmt::format("no test named '{}'", name->bytes));
  }
  const Arguments rest = rest_of(arguments, first + 1);
  const Level level(renderer.budget());
  std::vector<Value> result;
  for (const Value& item : renderer.items_of(self)) {
    const Value value = key(item);
    if (!renderer.budget().spend()) return {};
    if ((test ? test(renderer, value, rest) : is_true(value)) == wanted) result.push_back(item);
  }
  return renderer.heap().generator(std::move(result));
}

}  // namespace

NativeCode find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, NativeCode> kFilters = {
      {"batch", filter_batch},
      {"count", filter_length},
      {"dictsort", filter_dictsort},
      {"first", filter_first},
      {"groupby", filter_groupby},
      {"items", filter_items},
      {"join", filter_join},
      {"last", filter_last},
      {"length", filter_length},
      {"list", filter_list},
      {"map", filter_map},
      {"max", filter_max},
      {"min", filter_min},
      {"reject", filter_select<false, false>},
      {"rejectattr", filter_select<false, true>},
      {"reverse", filter_reverse},
      {"select", filter_select<true, false>},
      {"selectattr", filter_select<true, true>},
      {"slice", filter_slice},
      {"sort", filter_sort},
      {"sum", filter_sum},
      {"unique", filter_unique},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace quern
