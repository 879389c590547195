// Value: what template expressions work on, with Python's meaning of truth, equality and order.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "text/template/budget.h"
#include "text/template/text.h"

namespace quern {

using TextRef = std::shared_ptr<const Text>;
struct ValueList;
struct Dict;

/// Something with identity: containers, functions, loops. Owned by the Heap of one rendering, so cycles cost nothing.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
};

struct None {};
/// No value; `message` says why there is none (nullptr: nothing to say). Belongs to the Heap.
struct Undefined {
  const std::string* message = nullptr;
};

class Value {
 public:
  Value() = default;                                  // undefined
  Value(Undefined value) : value_(value) {}           // NOLINT(google-explicit-constructor)
  Value(None value) : value_(value) {}                // NOLINT(google-explicit-constructor)
  Value(bool value) : value_(value) {}                // NOLINT(google-explicit-constructor)
  Value(int64_t value) : value_(value) {}             // NOLINT(google-explicit-constructor)
  Value(double value) : value_(value) {}              // NOLINT(google-explicit-constructor)
  Value(TextRef value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Value(ValueList* value) : value_(value) {}          // NOLINT(google-explicit-constructor)
  Value(Dict* value) : value_(value) {}               // NOLINT(google-explicit-constructor)
  Value(Object* value) : value_(value) {}             // NOLINT(google-explicit-constructor)
  static Value count(size_t number) { return Value(static_cast<int64_t>(number)); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<None>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(value_); }
  bool is_float() const { return std::holds_alternative<double>(value_); }
  /// Python's int, of which bool is a kind.
  bool is_integral() const { return is_integer() || is_bool(); }
  bool is_number() const { return is_integral() || is_float(); }
  bool is_text() const { return std::holds_alternative<TextRef>(value_); }

  const Undefined& undefined() const { return std::get<Undefined>(value_); }
  int64_t integer() const { return is_bool() ? int64_t{std::get<bool>(value_)} : std::get<int64_t>(value_); }
  double number() const { return is_float() ? std::get<double>(value_) : static_cast<double>(integer()); }
  const Text& text() const { return *std::get<TextRef>(value_); }
  const TextRef& text_ref() const { return std::get<TextRef>(value_); }

  /// nullptr when it is of another type.
  ValueList* sequence() const { return pointer<ValueList>(); }
  Dict* dict() const { return pointer<Dict>(); }
  Object* object() const { return pointer<Object>(); }
  template <typename T>
  T* as() const {
    return dynamic_cast<T*>(object());
  }

  /// Python's name of the type: "str", "int", "list", ...
  std::string_view type_name() const;
  /// Same object, or same value for those without identity.
  bool same_as(const Value& other) const;

 private:
  template <typename T>
  T* pointer() const {
    T* const* found = std::get_if<T*>(&value_);
    return found ? *found : nullptr;
  }

  std::variant<Undefined, None, bool, int64_t, double, TextRef, ValueList*, Dict*, Object*> value_;
};

/// Everything with items in an order.
struct ValueList final : Object {
  enum class Kind { list, tuple, range, keys, values, items, generator };

  std::string_view type_name() const override;

  Kind kind = Kind::list;
  std::vector<Value> items;
  size_t next = 0;                        // generator: items before it have been taken
  int64_t start = 0, stop = 0, step = 1;  // range: as it was made
  bool is_group = false;                  // of groupby: the items are also called `grouper` and `list`
};

/// Insertion-ordered mapping; keys are hashed by value.
struct Dict final : Object {
  std::string_view type_name() const override { return "dict"; }

  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key) const;
  /// Adds or replaces; fails the budget when the key can not be hashed.
  void set(const Value& key, Value value, Budget& budget);

  std::vector<std::pair<Value, Value>> entries;

 private:
  std::optional<size_t> position(const Value& key, size_t hash, Budget& budget) const;

  std::unordered_multimap<size_t, size_t> index_;  // hash -> position, from kIndexedSize entries on
};

/// Owner of all objects of one rendering; counts what they hold.
class Heap {
 public:
  explicit Heap(Budget& budget) : budget_(budget) {}

  Value text(Text text);
  Value text(std::string bytes, bool trusted = true) { return this->text(Text(std::move(bytes), trusted)); }
  Value list(std::vector<Value> items, ValueList::Kind kind = ValueList::Kind::list);
  Value tuple(std::vector<Value> items) { return list(std::move(items), ValueList::Kind::tuple); }
  Value generator(std::vector<Value> items) { return list(std::move(items), ValueList::Kind::generator); }
  Dict* dict() { return make<Dict>(); }
  Value undefined(std::string message);
  void append(ValueList& sequence, Value value);

  template <typename T, typename... Arguments>
  T* make(Arguments&&... arguments) {
    auto object = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    T* pointer = object.get();
    objects_.push_back(std::move(object));
    budget_.hold(sizeof(T) + sizeof(void*));
    budget_.spend();
    return pointer;
  }

  /// The value of a JSON document; its strings have the given trust.
  Value from_json(const Json& json, bool trusted);

 private:
  Budget& budget_;
  std::vector<std::unique_ptr<Object>> objects_;
  std::vector<std::unique_ptr<const std::string>> messages_;
};

bool is_true(const Value& value);
bool equal(const Value& a, const Value& b, Budget& budget);
/// Python's order of numbers, strings, lists and tuples; fails the budget for anything else.
std::partial_ordering order(const Value& a, const Value& b, Budget& budget);
/// The positions 0 .. count - 1 in the order of `less`, stable. Safe with any `less`, even one that contradicts itself.
std::vector<size_t> sorted_positions(size_t count, const std::function<bool(size_t, size_t)>& less);
/// Equal values have equal hashes; fails the budget for lists and dicts.
size_t hash(const Value& value, Budget& budget);

}  // namespace quern
