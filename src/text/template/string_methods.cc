#include "text/template/string_methods.h"

#include <algorithm>
#include <fmt/format.h>
#include <unordered_map>

#include "text/template/filters.h"
#include "text/template/format.h"

namespace quern {

namespace {

bool is_among(uint32_t c, const Text* characters) {
  if (!characters) return is_space(c);
  for (size_t i = 0; i < characters->size(); i += character_size(characters->bytes, i)) {
    if (character_at(characters->bytes, i) == c) return true;
  }
  return false;
}

size_t last_character(std::string_view text, size_t end) {
  --end;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return end;
}

}  // namespace

Text strip_text(const Text& text, const Text* characters, bool left, bool right) {
  const std::string_view all = text.bytes;
  size_t begin = 0;
  size_t end = all.size();
  while (left && begin < end && is_among(character_at(all, begin), characters)) begin += character_size(all, begin);
  while (right && begin < end) {
    const size_t last = last_character(all, end);
    if (!is_among(character_at(all, last), characters)) break;
    end = last;
  }
  return text.slice(begin, std::max(begin, end));
}

std::vector<Text> split_lines(const Text& text, bool keep_breaks) {
  std::vector<Text> lines;
  const std::string_view all = text.bytes;
  size_t begin = 0;
  for (size_t i = 0; i < all.size();) {
    const uint32_t c = character_at(all, i);
    const size_t end = i;
    i += character_size(all, i);
    if (!is_line_break(c)) continue;
    if (c == '\r' && i < all.size() && all[i] == '\n') ++i;
    lines.push_back(text.slice(begin, keep_breaks ? i : end));
    begin = i;
  }
  if (begin < all.size()) lines.push_back(text.slice(begin, all.size()));
  return lines;
}

Value replace_text(Renderer& renderer, const Text& text, const Text& from, const Text& to, int64_t count) {
  Budget& budget = renderer.budget();
  budget.spend_bytes(text.size());
  Text result;
  result.markup = text.markup;
  size_t at = 0;
  while (count != 0 && at <= text.size()) {
    const size_t found = text.bytes.find(from.bytes, at);
    if (found == std::string::npos) break;
    result.append(text, at, found);
    result.append(to);
    at = found + from.size();
    if (count > 0) --count;
    if (!budget.spend() || !budget.allows_text(static_cast<int64_t>(result.size()))) return {};
    if (!from.empty()) continue;
    if (at == text.size()) return renderer.heap().text(std::move(result));
    const size_t next = at + character_size(text.bytes, at);
    result.append(text, at, next);
    at = next;
  }
  result.append(text, std::min(at, text.size()), text.size());
  return renderer.heap().text(std::move(result));
}

Value join_items(Renderer& renderer, const Text& separator, const std::vector<Value>& items) {
  Text result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_text()) {
      return renderer.fail(fmt::format("join needs strings, item {} is of type '{}'", i, items[i].type_name()));
    }
    if (i > 0) result.append(separator);
    result.append(items[i].text());
    if (!renderer.budget().spend() || !renderer.budget().allows_text(static_cast<int64_t>(result.size()))) return {};
  }
  return renderer.heap().text(std::move(result));
}

namespace {

/// `before` fills, the text, `after` fills; a width may ask for millions.
Value pad_text(Renderer& renderer, const Text& text, int64_t before, int64_t after, const Text& fill) {
  if (before < 0 || after < 0) return renderer.heap().text(text);
  if (before > renderer.budget().limits().max_output_bytes || after > renderer.budget().limits().max_output_bytes ||
      !renderer.budget().allows_text(before + after)) {
    return renderer.fail("a width is too large");
  }
  Text result;
  const auto add_fill = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) result.append(fill);
  };
  add_fill(before);
  result.append(text);
  add_fill(after);
  return renderer.heap().text(std::move(result));
}

int64_t missing_characters(const Text& text, int64_t width) {
  return std::max<int64_t>(0, width) - static_cast<int64_t>(count_characters(text.bytes));
}

}  // namespace

Value center_text(Renderer& renderer, const Text& text, int64_t width, const Text& fill) {
  const int64_t missing = missing_characters(text, width);
  const int64_t before = missing / 2 + (missing & width & 1);  // Python's rule for an odd rest
  return pad_text(renderer, text, before, missing - before, fill);
}

namespace {

const Text& text_of(const Value& self) { return self.text(); }

template <Case wanted>
Value string_case(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "the method", arguments, {});
  renderer.budget().spend_bytes(8 * text_of(self).size());
  return renderer.heap().text(change_case(text_of(self), wanted));
}

template <bool left, bool right>
Value string_strip(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "strip", arguments, {"chars"});
  if (!bound[0] || bound[0]->is_none()) return renderer.heap().text(strip_text(text_of(self), nullptr, left, right));
  const TextRef characters = bound.text(0);
  renderer.budget().spend_bytes(text_of(self).size());
  return renderer.heap().text(strip_text(text_of(self), characters.get(), left, right));
}

/// Splits at white space; `limit` counts from the left or from the right.
std::vector<Text> split_words(const Text& text, int64_t limit, bool from_right) {
  std::vector<std::pair<size_t, size_t>> words;
  const std::string_view all = text.bytes;
  for (size_t i = 0; i < all.size();) {
    while (i < all.size() && is_space(character_at(all, i))) i += character_size(all, i);
    const size_t begin = i;
    while (i < all.size() && !is_space(character_at(all, i))) i += character_size(all, i);
    if (i > begin) words.emplace_back(begin, i);
  }
  const size_t most = limit < 0 ? words.size() : std::min(words.size(), static_cast<size_t>(limit) + 1);
  const size_t merged = words.size() - most;  // words that stay together with their neighbours
  std::vector<Text> result;
  if (from_right && merged > 0) {
    result.push_back(strip_text(text.slice(0, words[merged].second), nullptr, false, true));
    for (size_t i = merged + 1; i < words.size(); ++i) result.push_back(text.slice(words[i].first, words[i].second));
    return result;
  }
  for (size_t i = 0; i < most; ++i) {
    const bool rest = merged > 0 && i + 1 == most;
    result.push_back(text.slice(words[i].first, rest ? all.size() : words[i].second));
  }
  return result;
}

std::vector<Text> split_at(const Text& text, const Text& separator, int64_t limit, bool from_right) {
  std::vector<size_t> places;
  const std::string_view all = text.bytes;
  const std::string_view wanted = separator.bytes;
  size_t at = from_right ? all.size() : 0;
  while (limit < 0 || static_cast<int64_t>(places.size()) < limit) {
    if (from_right && at < wanted.size()) break;
    const size_t found = from_right ? all.rfind(wanted, at - wanted.size()) : all.find(wanted, at);
    if (found == std::string_view::npos) break;
    places.push_back(found);
    at = from_right ? found : found + wanted.size();
  }
  if (from_right) std::reverse(places.begin(), places.end());
  std::vector<Text> result;
  size_t begin = 0;
  for (const size_t place : places) {
    result.push_back(text.slice(begin, place));
    begin = place + wanted.size();
  }
  result.push_back(text.slice(begin, all.size()));
  return result;
}

Value list_of(Renderer& renderer, std::vector<Text> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.push_back(renderer.heap().text(std::move(text)));
  return renderer.heap().list(std::move(items));
}

template <bool from_right>
Value string_split(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "split", arguments, {"sep", "maxsplit"});
  const int64_t limit = bound.integer(1, -1);
  renderer.budget().spend_bytes(text_of(self).size());
  if (!bound[0] || bound[0]->is_none()) return list_of(renderer, split_words(text_of(self), limit, from_right));
  const TextRef separator = bound.text(0);
  if (renderer.budget().failed()) return {};
  if (separator->empty()) return renderer.fail("empty separator");
  return list_of(renderer, split_at(text_of(self), *separator, limit, from_right));
}

Value string_splitlines(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "splitlines", arguments, {"keepends"});
  renderer.budget().spend_bytes(text_of(self).size());
  return list_of(renderer, split_lines(text_of(self), bound.flag(0)));
}

template <bool from_right>
Value string_partition(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "partition", arguments, {"sep"}, 1);
  const TextRef separator = bound.text(0);
  if (renderer.budget().failed()) return {};
  if (separator->empty()) return renderer.fail("empty separator");
  const std::vector<Text> parts = split_at(text_of(self), *separator, 1, from_right);
  Heap& heap = renderer.heap();
  if (parts.size() == 2) return heap.tuple({heap.text(parts[0]), separator, heap.text(parts[1])});
  const Value none = heap.text("");
  return from_right ? heap.tuple({none, none, self}) : heap.tuple({self, none, none});
}

/// startswith and endswith: one string or a tuple of them, within optional bounds.
template <bool at_end>
Value string_edge(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, at_end ? "endswith" : "startswith", arguments, {"affix"}, 1);
  if (renderer.budget().failed()) return {};
  std::vector<Value> candidates = {*bound[0]};
  const ValueList* sequence = bound[0]->sequence();
  if (sequence && sequence->kind == ValueList::Kind::tuple) candidates = sequence->items;
  for (const Value& candidate : candidates) {
    if (!candidate.is_text()) {
      return renderer.fail(fmt::format("startswith and endswith need a string, not '{}'", candidate.type_name()));
    }
    const std::string_view affix = candidate.text().bytes;
    if (at_end ? text_of(self).view().ends_with(affix) : text_of(self).view().starts_with(affix)) return true;
  }
  return false;
}

/// find, rfind, index, rindex in characters.
template <bool from_right, bool must_exist>
Value string_find(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "find", arguments, {"sub"}, 1);
  const TextRef wanted = bound.text(0);
  renderer.budget().spend_bytes(text_of(self).size());
  const std::string_view all = text_of(self).bytes;
  const size_t found = from_right ? all.rfind(wanted->bytes) : all.find(wanted->bytes);
  if (found != std::string_view::npos) return Value::count(count_characters(all.substr(0, found)));
  return must_exist ? renderer.fail("substring not found") : Value(int64_t{-1});
}

Value string_count(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "count", arguments, {"sub"}, 1);
  const TextRef wanted = bound.text(0);
  renderer.budget().spend_bytes(text_of(self).size());
  const std::string_view all = text_of(self).bytes;
  if (wanted->empty()) return Value::count(count_characters(all) + 1);
  int64_t count = 0;
  for (size_t at = all.find(wanted->bytes); at != std::string_view::npos;
       at = all.find(wanted->bytes, at + wanted->size())) {
    ++count;
  }
  return count;
}

Value string_replace(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "replace", arguments, {"old", "new", "count"}, 2);
  const TextRef from = bound.text(0);
  const TextRef to = bound.text(1);
  const int64_t count = bound.integer(2, -1);
  return renderer.budget().failed() ? Value() : replace_text(renderer, text_of(self), *from, *to, count);
}

Value string_join(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "join", arguments, {"iterable"}, 1);
  const std::vector<Value> items = renderer.items_of(bound.value(0));
  return join_items(renderer, text_of(self), items);
}

Value string_format(Renderer& renderer, const Value& self, const Arguments& arguments) {
  return format_braces(renderer, text_of(self), arguments);
}

template <bool suffix>
Value string_remove(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "removeprefix", arguments, {"affix"}, 1);
  const TextRef affix = bound.text(0);
  const Text& text = text_of(self);
  const bool found = suffix ? text.view().ends_with(affix->bytes) : text.view().starts_with(affix->bytes);
  if (!found || affix->empty()) return self;
  return renderer.heap().text(suffix ? text.slice(0, text.size() - affix->size())
                                     : text.slice(affix->size(), text.size()));
}

/// ljust, rjust and center.
template <int side>
Value string_justify(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "justify", arguments, {"width", "fillchar"}, 1);
  const int64_t width = bound.integer(0, 0);
  const TextRef fill = bound.text(1, " ");
  if (renderer.budget().failed()) return {};
  if (count_characters(fill->bytes) != 1) return renderer.fail("the fill must be one character");
  const int64_t missing = missing_characters(text_of(self), width);
  if (side == 0) return center_text(renderer, text_of(self), width, *fill);
  return pad_text(renderer, text_of(self), side > 0 ? missing : 0, side > 0 ? 0 : missing, *fill);
}

Value string_zfill(Renderer& renderer, const Value& self, const Arguments& arguments) {
  const Bound bound(renderer, "zfill", arguments, {"width"}, 1);
  const int64_t missing = missing_characters(text_of(self), bound.integer(0, 0));
  const Text& text = text_of(self);
  const bool sign = text.view().starts_with('-') || text.view().starts_with('+');
  if (missing <= 0 || !sign) return pad_text(renderer, text, missing, 0, Text("0"));
  const Value rest = pad_text(renderer, text.slice(1, text.size()), missing, 0, Text("0"));
  if (renderer.budget().failed()) return {};
  Text result = text.slice(0, 1);
  result.append(rest.text());
  return renderer.heap().text(std::move(result));
}

template <bool (*property)(uint32_t)>
Value string_all(Renderer& renderer, const Value& self, const Arguments&) {
  const Text& text = text_of(self);
  renderer.budget().spend_bytes(text.size());
  for (size_t i = 0; i < text.size(); i += character_size(text.bytes, i)) {
    if (!property(character_at(text.bytes, i))) return false;
  }
  return !text.empty();
}

bool is_alphanumeric(uint32_t c) { return c != '_' && is_word(c); }

template <bool (*right)(uint32_t), bool (*wrong)(uint32_t)>
Value string_cased(Renderer& renderer, const Value& self, const Arguments&) {
  const Text& text = text_of(self);
  renderer.budget().spend_bytes(text.size());
  bool found = false;
  for (size_t i = 0; i < text.size(); i += character_size(text.bytes, i)) {
    const uint32_t c = character_at(text.bytes, i);
    if (wrong(c)) return false;
    found = found || right(c);
  }
  return found;
}

}  // namespace

NativeCode find_string_method(std::string_view name) {
  static const std::unordered_map<std::string_view, NativeCode> kMethods = {
      {"capitalize", string_case<Case::capitalize>},
      {"casefold", string_case<Case::lower>},
      {"center", string_justify<0>},
      {"count", string_count},
      {"endswith", string_edge<true>},
      {"find", string_find<false, false>},
      {"format", string_format},
      {"index", string_find<false, true>},
      {"isalnum", string_all<is_alphanumeric>},
      {"isalpha", string_all<is_letter>},
      {"isdecimal", string_all<is_digit>},
      {"isdigit", string_all<is_digit>},
      {"islower", string_cased<is_lower, is_upper>},
      {"isnumeric", string_all<is_digit>},
      {"isspace", string_all<is_space>},
      {"isupper", string_cased<is_upper, is_lower>},
      {"join", string_join},
      {"ljust", string_justify<-1>},
      {"lower", string_case<Case::lower>},
      {"lstrip", string_strip<true, false>},
      {"partition", string_partition<false>},
      {"removeprefix", string_remove<false>},
      {"removesuffix", string_remove<true>},
      {"replace", string_replace},
      {"rfind", string_find<true, false>},
      {"rindex", string_find<true, true>},
      {"rjust", string_justify<1>},
      {"rpartition", string_partition<true>},
      {"rsplit", string_split<true>},
      {"rstrip", string_strip<false, true>},
      {"split", string_split<false>},
      {"splitlines", string_splitlines},
      {"startswith", string_edge<false>},
      {"strip", string_strip<true, true>},
      {"swapcase", string_case<Case::swap>},
      {"title", string_case<Case::title>},
      {"upper", string_case<Case::upper>},
      {"zfill", string_zfill},
  };
  const auto found = kMethods.find(name);
  return found == kMethods.end() ? nullptr : found->second;
}

}  // namespace quern
