#include "cache/prefix_tree.h"

#include <algorithm>

#include "base/check.h"

namespace quern {

PrefixTree::PrefixTree(std::vector<GroupSpec> groups, PagePool& pool)
    : groups_(std::move(groups)), pool_(pool), homes_(size_t(pool.size())), loose_stamps_(size_t(pool.size()), 0) {
  for (const GroupSpec& group : groups_) {
    if (group.kind != GroupSpec::Kind::recurrent) node_tokens_ = std::max(node_tokens_, group.page_tokens);
  }
  if (node_tokens_ == 0) node_tokens_ = 16;
  first_slot_.push_back(0);
  for (const GroupSpec& group : groups_) {
    const bool recurrent = group.kind == GroupSpec::Kind::recurrent;
    CHECK((recurrent ? group.page_tokens % node_tokens_ : node_tokens_ % group.page_tokens) == 0);
    const int count = recurrent ? group.snapshot_pages : node_tokens_ / group.page_tokens;
    first_slot_.push_back(first_slot_.back() + count);
    group_.insert(group_.end(), size_t(count), first_slot_.size() - 2);
    needed_.insert(needed_.end(), size_t(count), group.kind == GroupSpec::Kind::full);
  }
}

PrefixTree::Match PrefixTree::match(const Namespace& space, std::span<const int32_t> tokens) const {
  Match match;
  const auto root = roots_.find(space);
  if (root == roots_.end()) return match;
  const size_t step = size_t(node_tokens_);
  Node node = root->second;
  size_t begin = 0;
  for (; begin + step <= tokens.size(); begin += step) {
    const Node child = find_child(node, tokens.subspan(begin, step));
    if (child == none) break;
    match.nodes.push_back(child);
    node = child;
  }
  match_partial(match, node, tokens.subspan(begin));
  cut_to_servable(match);
  return match;
}

PrefixTree::Node PrefixTree::find(const Namespace& space, std::span<const int32_t> tokens) const {
  const auto root = roots_.find(space);
  Node node = root == roots_.end() ? none : root->second;
  const size_t step = size_t(node_tokens_);
  for (size_t begin = 0; begin + step <= tokens.size() && node != none; begin += step) {
    node = find_child(node, tokens.subspan(begin, step));
  }
  return node;
}

size_t PrefixTree::child_position(Node parent, std::span<const int32_t> tokens) const {
  const std::vector<Node>& children = nodes_[at(parent)].children;
  const auto less = [this](Node node, std::span<const int32_t> wanted) {
    const auto own = this->tokens(node);
    return std::lexicographical_compare(own.begin(), own.end(), wanted.begin(), wanted.end());
  };
  return size_t(std::lower_bound(children.begin(), children.end(), tokens, less) - children.begin());
}

PrefixTree::Node PrefixTree::find_child(Node parent, std::span<const int32_t> tokens) const {
  const std::vector<Node>& children = nodes_[at(parent)].children;
  const size_t position = children.size() == 1 ? 0 : child_position(parent, tokens);
  if (position == children.size()) return none;
  const Node child = children[position];
  return std::ranges::equal(this->tokens(child), tokens) ? child : none;
}

/// The child that shares most of its first tokens with `rest` stands beside the place where `rest` would stand.
void PrefixTree::match_partial(Match& match, Node parent, std::span<const int32_t> rest) const {
  const std::vector<Node>& children = nodes_[at(parent)].children;
  const size_t position = child_position(parent, rest);
  for (size_t i = position == 0 ? 0 : position - 1; i < std::min(position + 1, children.size()); ++i) {
    const auto own = tokens(children[i]);
    const auto ends = std::ranges::mismatch(own, rest);
    const int shared = static_cast<int>(ends.in1 - own.begin());
    if (shared > match.partial_tokens) {
      match.partial = children[i];
      match.partial_tokens = shared;
    }
  }
}

/// A window group serves a length when the pages of its last window - 1 tokens are there, a recurrent one when its
/// snapshot is.
void PrefixTree::cut_to_servable(Match& match) const {
  std::vector<int> gaps(groups_.size(), -1);  // the last node without pages of that group
  const auto servable = [&](Node node, int place, int length) {
    bool all = true;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].kind == GroupSpec::Kind::full) continue;
      if (!has_group(node, g)) gaps[g] = place;
      const bool recurrent = groups_[g].kind == GroupSpec::Kind::recurrent;
      const int first = recurrent ? place : std::max(0, length - groups_[g].window + 1) / node_tokens_;
      all = all && gaps[g] < first && (!recurrent || length % node_tokens_ == 0);
    }
    return all;
  };
  int best = 0;
  const int whole = static_cast<int>(match.nodes.size());
  match.known_tokens = whole * node_tokens_;
  for (int i = 0; i < whole; ++i) {
    if (servable(match.nodes[size_t(i)], i, (i + 1) * node_tokens_)) best = i + 1;
  }
  match.tokens = whole * node_tokens_ + match.partial_tokens;
  if (match.partial != none && servable(match.partial, whole, match.tokens)) return;
  match.nodes.resize(size_t(best));
  match.partial = none;
  match.partial_tokens = 0;
  match.tokens = best * node_tokens_;
}

PrefixTree::Node PrefixTree::insert(const Namespace& space, Node parent, std::span<const int32_t> tokens,
                                    std::span<const PageId> pages, bool renews) {
  if (parent == none) {
    const auto [root, added] = roots_.try_emplace(space, none);
    if (added) root->second = add_node(space, none, {});
    parent = root->second;
  }
  Node node = find_child(parent, tokens);
  if (node == none) node = add_node(space, parent, tokens);
  renews = renews && nodes_[at(node)].uses == 0;
  for (int slot = 0; slot < slots(); ++slot) {
    const PageId page = pages[size_t(slot)];
    if (page == no_page || home(page).node != none) continue;
    if (renews && needed_[size_t(slot)]) detach(node, slot);
    if (this->page(node, slot) != no_page) continue;
    pool_.use(page);
    attach(node, slot, page);
  }
  return node;
}

PrefixTree::Node PrefixTree::add_node(const Namespace& space, Node parent, std::span<const int32_t> tokens) {
  Node node = static_cast<Node>(nodes_.size());
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
    tokens_.resize(tokens_.size() + size_t(node_tokens_));
    pages_.resize(pages_.size() + size_t(slots()));
  } else {
    node = free_nodes_.back();
    free_nodes_.pop_back();
  }
  std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(at(node)) * node_tokens_);
  std::fill_n(pages_.begin() + static_cast<std::ptrdiff_t>(at(node)) * slots(), slots(), no_page);
  NodeState& state = nodes_[at(node)];
  state.parent = parent;
  state.stamp = ++clock_;
  state.live = true;
  state.space = space;
  if (parent != none) {
    if (evictable(parent)) leaves_.erase({nodes_[at(parent)].stamp, parent});
    const size_t position = child_position(parent, tokens);
    std::vector<Node>& children = nodes_[at(parent)].children;
    children.insert(children.begin() + static_cast<std::ptrdiff_t>(position), node);
    leaves_.insert({state.stamp, node});
  }
  return node;
}

/// The page's users are counted, that of the tree included.
void PrefixTree::attach(Node node, int slot, PageId page) {
  pages_[at(node) * size_t(slots()) + size_t(slot)] = page;
  home(page) = {node, slot};
  const int others = pool_.users(page) - 1;
  if (others == 0) ++cached_;
  if (needed_[size_t(slot)]) {
    if (evictable(node)) leaves_.erase({nodes_[at(node)].stamp, node});
    nodes_[at(node)].uses += others;
    settle(node);
  } else if (others == 0) {
    loose_stamps_[size_t(index(page))] = ++clock_;
    loose_.insert({clock_, page});
  }
}

void PrefixTree::give_snapshot(Node node, size_t group, std::span<const PageId> pages) {
  const bool wanted = !has_group(node, group);
  for (int i = 0; i < static_cast<int>(pages.size()); ++i) {
    if (wanted) {
      attach(node, first_slot_[group] + i, pages[size_t(i)]);
    } else {
      pool_.release(pages[size_t(i)]);
    }
  }
}

void PrefixTree::use(PageId page) {
  pool_.use(page);
  const Home& place = home(page);
  if (place.node == none) return;
  const bool was_cached = pool_.users(page) == 2;
  if (was_cached) --cached_;
  if (needed_[size_t(place.slot)]) {
    if (evictable(place.node)) leaves_.erase({nodes_[at(place.node)].stamp, place.node});
    ++nodes_[at(place.node)].uses;
  } else if (was_cached) {
    loose_.erase({loose_stamps_[size_t(index(page))], page});
  }
}

void PrefixTree::release(PageId page) {
  const int left = pool_.release(page);
  const Home& place = home(page);
  if (place.node == none) return;
  if (left == 1) ++cached_;
  if (needed_[size_t(place.slot)]) {
    NodeState& node = nodes_[at(place.node)];
    --node.uses;
    node.stamp = ++clock_;
    settle(place.node);
  } else if (left == 1) {
    loose_stamps_[size_t(index(page))] = ++clock_;
    loose_.insert({clock_, page});
  }
}

void PrefixTree::pin(Node node) {
  if (evictable(node)) leaves_.erase({nodes_[at(node)].stamp, node});
  ++nodes_[at(node)].pins;
}

void PrefixTree::unpin(Node node) {
  CHECK(nodes_[at(node)].pins-- > 0);
  settle(node);
}

bool PrefixTree::evictable(Node node) const {
  const NodeState& state = nodes_[at(node)];
  return state.parent != none && state.children.empty() && state.uses == 0 && state.pins == 0;
}

void PrefixTree::settle(Node node) {
  if (evictable(node)) leaves_.insert({nodes_[at(node)].stamp, node});
}

bool PrefixTree::make_free(int wanted) {
  if (pool_.free() + cached_ < wanted) return false;
  while (pool_.free() < wanted) evict_one();
  return true;
}

void PrefixTree::clear() {
  while (!leaves_.empty() || !loose_.empty()) evict_one();
}

void PrefixTree::evict_one() {
  CHECK(!leaves_.empty() || !loose_.empty());
  if (leaves_.empty() || (!loose_.empty() && loose_.begin()->first < leaves_.begin()->first)) {
    const Home place = home(loose_.begin()->second);
    const size_t group = group_[size_t(place.slot)];
    const bool snapshot = groups_[group].kind == GroupSpec::Kind::recurrent;  // a part of one is of no use
    const int first = snapshot ? first_slot_[group] : place.slot;
    const int end = snapshot ? first_slot_[group + 1] : place.slot + 1;
    for (int slot = first; slot < end; ++slot) detach(place.node, slot);
  } else {
    remove(leaves_.begin()->second);
  }
}

void PrefixTree::detach(Node node, int slot) {
  PageId& page = pages_[at(node) * size_t(slots()) + size_t(slot)];
  if (page == no_page) return;
  if (pool_.users(page) == 1) {
    --cached_;
    if (!needed_[size_t(slot)]) loose_.erase({loose_stamps_[size_t(index(page))], page});
  }
  home(page) = {};
  pool_.release(page);
  page = no_page;
}

/// A leaf or an empty root. Its parent was used no earlier than it.
void PrefixTree::remove(Node node) {
  for (int slot = 0; slot < slots(); ++slot) detach(node, slot);
  const NodeState state = std::move(nodes_[at(node)]);
  leaves_.erase({state.stamp, node});
  nodes_[at(node)] = {};
  free_nodes_.push_back(node);
  if (state.parent == none) {
    roots_.erase(state.space);
    return;
  }
  NodeState& parent = nodes_[at(state.parent)];
  std::erase(parent.children, node);
  parent.stamp = std::max(parent.stamp, state.stamp);
  settle(state.parent);
  if (parent.parent == none && parent.children.empty()) remove(state.parent);
}

std::string PrefixTree::count(std::vector<int>& users) const {
  int cached = 0;
  size_t leaves = 0;
  size_t loose = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].live) continue;
    const Node node = static_cast<Node>(i);
    const std::string name = "node " + std::to_string(i);
    int uses = 0;
    for (int slot = 0; slot < slots(); ++slot) {
      const PageId own = page(node, slot);
      if (own == no_page) {
        if (needed_[size_t(slot)] && nodes_[i].parent != none) return name + " lacks a page";
        continue;
      }
      const Home& place = homes_[size_t(index(own))];
      if (place.node != node || place.slot != slot) return name + " holds a page of another";
      ++users[size_t(index(own))];
      const int others = pool_.users(own) - 1;
      cached += others == 0;
      if (needed_[size_t(slot)]) uses += others;
      if (others == 0 && !needed_[size_t(slot)]) ++loose;
    }
    if (uses != nodes_[i].uses) return name + " counts its uses wrong";
    leaves += evictable(node) && leaves_.contains({nodes_[i].stamp, node});
    if (evictable(node) && !leaves_.contains({nodes_[i].stamp, node})) return name + " is not among the leaves";
    for (const Node child : nodes_[i].children) {
      if (!nodes_[at(child)].live || nodes_[at(child)].parent != node) return name + " has a child of another";
    }
  }
  if (cached != cached_) return "the tree counts its cached pages wrong";
  if (leaves != leaves_.size() || loose != loose_.size()) return "the tree's eviction order holds what is not there";
  return "";
}

}  // namespace quern
