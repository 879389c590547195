#include "text/template/value.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

namespace quern {

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool", "int", "float", "str"};
  if (value_.index() < std::size(kNames)) return kNames[value_.index()];
  if (const ValueList* s = sequence()) return s->type_name();
  if (dict()) return "dict";
  return object()->type_name();
}

bool Value::same_as(const Value& other) const {
  if (value_.index() != other.value_.index()) return false;
  if (is_undefined()) return true;
  if (is_none()) return true;
  if (is_number()) return number() == other.number();
  if (is_text()) return text_ref() == other.text_ref() || text().bytes == other.text().bytes;
  return sequence() == other.sequence() && dict() == other.dict() && object() == other.object();
}

std::string_view ValueList::type_name() const {
  static constexpr std::string_view kNames[] = {"list",        "tuple",      "range",    "dict_keys",
                                                "dict_values", "dict_items", "generator"};
  return kNames[static_cast<size_t>(kind)];
}

namespace {
constexpr size_t kIndexedSize = 12;  // smaller dicts are searched one by one
}  // namespace

std::optional<size_t> Dict::position(const Value& key, size_t key_hash, Budget& budget) const {
  if (entries.size() < kIndexedSize) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (equal(entries[i].first, key, budget)) return i;
    }
    return {};
  }
  const auto [first, last] = index_.equal_range(key_hash);
  for (auto it = first; it != last; ++it) {
    if (equal(entries[it->second].first, key, budget)) return it->second;
  }
  return {};
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  const size_t key_hash = hash(key, budget);
  if (budget.failed()) return nullptr;
  const auto found = position(key, key_hash, budget);
  return found ? &entries[*found].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto matches = [&](size_t i) { return entries[i].first.is_text() && entries[i].first.text().bytes == key; };
  if (entries.size() < kIndexedSize) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (matches(i)) return &entries[i].second;
    }
    return nullptr;
  }
  const auto [first, last] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = first; it != last; ++it) {
    if (matches(it->second)) return &entries[it->second].second;
  }
  return nullptr;
}

void Dict::set(const Value& key, Value value, Budget& budget) {
  const size_t key_hash = hash(key, budget);
  if (budget.failed()) return;
  if (const auto found = position(key, key_hash, budget)) {
    entries[*found].second = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
  budget.hold(sizeof(entries[0]) + 4 * sizeof(size_t));
  if (entries.size() > kIndexedSize) {
    index_.emplace(key_hash, entries.size() - 1);
  } else if (entries.size() == kIndexedSize) {
    for (size_t i = 0; i < entries.size(); ++i) index_.emplace(hash(entries[i].first, budget), i);
  }
}

Value Heap::text(Text text) {
  const size_t bytes = text.size() + text.flips.size() * sizeof(size_t) + sizeof(Text);
  budget_.allows_text(static_cast<int64_t>(text.size()));
  budget_.spend_bytes(text.size());
  budget_.hold(bytes);
  Budget* budget = &budget_;
  return TextRef(new Text(std::move(text)), [budget, bytes](const Text* dead) {
    budget->release(bytes);
    delete dead;
  });
}

Value Heap::list(std::vector<Value> items, ValueList::Kind kind) {
  budget_.hold(items.size() * sizeof(Value));
  budget_.spend(static_cast<int64_t>(items.size() / 8));
  ValueList* result = make<ValueList>();
  result->kind = kind;
  result->items = std::move(items);
  return result;
}

Value Heap::undefined(std::string message) {
  budget_.hold(sizeof(std::string) + message.size());
  messages_.push_back(std::make_unique<const std::string>(std::move(message)));
  return Undefined{messages_.back().get()};
}

void Heap::append(ValueList& sequence, Value value) {
  budget_.hold(sizeof(Value));
  sequence.items.push_back(std::move(value));
}

Value Heap::from_json(const Json& json, bool trusted) {
  const Level level(budget_);
  if (!level || !budget_.spend()) return {};
  if (json.is_null()) return None();
  if (json.is_bool()) return json.as_bool();
  if (json.is_integer()) return json.as_integer();
  if (json.is_number()) return json.as_number();
  if (json.is_string()) {
    if (!is_valid_utf8(json.as_string())) budget_.fail("a string for the chat template is not UTF-8");
    return text(json.as_string(), trusted);
  }
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.items().size());
    for (const Json& item : json.items()) items.push_back(from_json(item, trusted));
    return list(std::move(items));
  }
  Dict* result = dict();
  for (const auto& [key, member] : json.members()) {
    result->set(text(key, trusted), from_json(member, trusted), budget_);
  }
  return result;
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.number() != 0;
  if (value.is_text()) return !value.text().empty();
  if (const ValueList* sequence = value.sequence()) {
    return sequence->kind == ValueList::Kind::generator || !sequence->items.empty();
  }
  if (const Dict* dict = value.dict()) return !dict->entries.empty();
  return true;
}

namespace {

/// Whether Python compares the two kinds item by item.
bool comparable(const ValueList& a, const ValueList& b) {
  using Kind = ValueList::Kind;
  return a.kind == b.kind && a.kind != Kind::generator && a.kind != Kind::values;
}

bool equal_sequences(const ValueList& a, const ValueList& b, Budget& budget) {
  if (&a == &b) return true;
  if (!comparable(a, b) || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(a.items[i], b.items[i], budget)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key, budget);
    if (!other || !equal(value, *other, budget)) return false;
  }
  return true;
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  return a.number() == b.number();
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  const Level level(budget);
  if (!level || !budget.spend()) return false;
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.is_text() && b.is_text()) {
    budget.spend_bytes(std::min(a.text().size(), b.text().size()));
    return a.text().bytes == b.text().bytes;
  }
  if (a.sequence() && b.sequence()) return equal_sequences(*a.sequence(), *b.sequence(), budget);
  if (a.dict() && b.dict()) return equal_dicts(*a.dict(), *b.dict(), budget);
  return a.same_as(b);
}

namespace {

std::partial_ordering order_sequences(const ValueList& a, const ValueList& b, Budget& budget) {
  const size_t shared = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < shared; ++i) {
    if (!equal(a.items[i], b.items[i], budget)) return order(a.items[i], b.items[i], budget);
  }
  return a.items.size() <=> b.items.size();
}

}  // namespace

std::partial_ordering order(const Value& a, const Value& b, Budget& budget) {
  const Level level(budget);
  if (!level || !budget.spend()) return std::partial_ordering::unordered;
  if (a.is_integral() && b.is_integral()) return a.integer() <=> b.integer();
  if (a.is_number() && b.is_number()) return a.number() <=> b.number();
  if (a.is_text() && b.is_text()) {
    budget.spend_bytes(std::min(a.text().size(), b.text().size()));
    return a.text().bytes.compare(b.text().bytes) <=> 0;
  }
  const ValueList* left = a.sequence();
  const ValueList* right = b.sequence();
  if (left && right && left->kind == right->kind &&
      (left->kind == ValueList::Kind::list || left->kind == ValueList::Kind::tuple)) {
    return order_sequences(*left, *right, budget);
  }
  for (const Value* side : {&a, &b}) {
    if (side->is_undefined() && side->undefined().message) budget.fail(*side->undefined().message);
  }
  budget.fail(fmt::format("values of types '{}' and '{}' have no order", a.type_name(), b.type_name()));
  return std::partial_ordering::unordered;
}

std::vector<size_t> sorted_positions(size_t count, const std::function<bool(size_t, size_t)>& less) {
  std::vector<size_t> from(count);
  std::iota(from.begin(), from.end(), size_t{0});
  std::vector<size_t> to(count);
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t begin = 0; begin < count; begin += 2 * width) {
      const size_t middle = std::min(begin + width, count);
      const size_t end = std::min(begin + 2 * width, count);
      size_t left = begin;
      size_t right = middle;
      for (size_t i = begin; i < end; ++i) {
        const bool take_right = left == middle || (right < end && less(from[right], from[left]));
        to[i] = take_right ? from[right++] : from[left++];
      }
    }
    std::swap(from, to);
  }
  return from;
}

size_t hash(const Value& value, Budget& budget) {
  const Level level(budget);
  if (!level || !budget.spend()) return 0;
  if (value.is_number()) return std::hash<double>()(value.number());
  if (value.is_text()) {
    budget.spend_bytes(value.text().size());
    return std::hash<std::string_view>()(value.text().view());
  }
  if (const ValueList* sequence = value.sequence()) {
    if (sequence->kind == ValueList::Kind::tuple) {
      size_t result = sequence->items.size();
      for (const Value& item : sequence->items) result = result * 1000003 + hash(item, budget);
      return result;
    }
    if (sequence->kind != ValueList::Kind::list) return std::hash<const void*>()(sequence);
  }
  if (value.sequence() || value.dict()) budget.fail(fmt::format("unhashable type: '{}'", value.type_name()));
  return value.object() ? std::hash<const void*>()(value.object()) : value.is_none() ? 1 : 2;
}

}  // namespace quern
