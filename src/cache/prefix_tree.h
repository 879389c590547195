// PrefixTree: which pages hold which prefix. Matches are exact and end at any token. Thread: engine.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "cache/page_pool.h"

namespace quern {

/// A node is `node_tokens` tokens after its parent's, with the pages that hold them in every group: always those of
/// full groups; those of window groups and the snapshot of the recurrent group at its end only as long as nobody needs
/// the memory. The tree is one user of each page it knows; sequences use and release pages through it. Evicted is what
/// was released longest ago and has no user but the tree: a leaf with all its pages, or what its node can do without: a
/// page of a window group, or a whole snapshot.
class PrefixTree {
 public:
  /// Prefixes are shared within one namespace only.
  struct Namespace {
    int32_t adapter = 0;
    uint64_t salt = 0;
    auto operator<=>(const Namespace&) const = default;
  };
  using Node = int32_t;
  static constexpr Node none = -1;

  /// The longest prefix that all groups can serve: `nodes` whole ones, and the first `partial_tokens` of `partial`.
  struct Match {
    std::vector<Node> nodes;
    Node partial = none;
    int partial_tokens = 0;
    int tokens = 0;
    int known_tokens = 0;  // of whole nodes that are there, whether or not all groups can serve them
  };

  PrefixTree(std::vector<GroupSpec> groups, PagePool& pool);

  int node_tokens() const { return node_tokens_; }
  /// Places of a node's pages: those of group g are [first_slot(g), first_slot(g + 1)).
  int first_slot(size_t group) const { return first_slot_[group]; }
  int slots() const { return first_slot_.back(); }
  PageId page(Node node, int slot) const { return pages_[at(node) * size_t(slots()) + size_t(slot)]; }

  Match match(const Namespace& space, std::span<const int32_t> tokens) const;

  /// The node at the end of these tokens, a multiple of node_tokens(); none when it is not there.
  Node find(const Namespace& space, std::span<const int32_t> tokens) const;
  /// The child of `parent` (none: the root of `space`) with these node_tokens() tokens; made when there is none. Of
  /// `pages` (one per slot, no_page where there is none) the tree takes those that it lacks; each must have a user.
  /// With `renews` they also take the places of full groups' pages, if nobody uses these: the caller can go on below.
  Node insert(const Namespace& space, Node parent, std::span<const int32_t> tokens, std::span<const PageId> pages,
              bool renews);
  /// The tree takes over the caller's use of `pages` as the snapshot of `group` at the end of `node`.
  void give_snapshot(Node node, size_t group, std::span<const PageId> pages);

  void use(PageId page);
  void release(PageId page);
  /// A pinned node stays, and so do its ancestors: a sequence pins the one below which it will insert.
  void pin(Node node);
  void unpin(Node node);

  /// Pages that only the tree uses; all of them can be evicted.
  int cached() const { return cached_; }
  /// Makes pages free until the pool has `wanted` free ones. False when it cannot; then nothing is evicted.
  bool make_free(int wanted);
  /// Forgets all that no sequence uses.
  void clear();

  /// Adds the tree's own uses to `users`, by page. Empty, or what is wrong.
  std::string count(std::vector<int>& users) const;

 private:
  struct NodeState {
    Node parent = none;
    int32_t uses = 0;  // of its full groups' pages, by others than the tree
    int32_t pins = 0;
    uint64_t stamp = 0;  // when the last of them was released
    bool live = false;
    Namespace space;
    std::vector<Node> children;  // in the order of their tokens
  };
  struct Home {
    Node node = none;
    int32_t slot = 0;
  };

  static size_t at(Node node) { return static_cast<size_t>(node); }
  std::span<const int32_t> tokens(Node node) const {
    return {tokens_.data() + at(node) * size_t(node_tokens_), size_t(node_tokens_)};
  }
  Home& home(PageId page) { return homes_[static_cast<size_t>(index(page))]; }
  bool has_group(Node node, size_t group) const { return page(node, first_slot_[group]) != no_page; }
  size_t child_position(Node parent, std::span<const int32_t> tokens) const;
  Node find_child(Node parent, std::span<const int32_t> tokens) const;
  void match_partial(Match& match, Node parent, std::span<const int32_t> rest) const;
  void cut_to_servable(Match& match) const;
  Node add_node(const Namespace& space, Node parent, std::span<const int32_t> tokens);
  void attach(Node node, int slot, PageId page);
  void detach(Node node, int slot);
  void settle(Node node);
  bool evictable(Node node) const;
  void evict_one();
  void remove(Node node);

  const std::vector<GroupSpec> groups_;
  PagePool& pool_;
  int node_tokens_ = 0;
  std::vector<int> first_slot_;
  std::vector<size_t> group_;        // by slot
  std::vector<bool> needed_;         // by slot: of a full group
  std::map<Namespace, Node> roots_;  // a root has no tokens and no pages
  std::vector<NodeState> nodes_;
  std::vector<int32_t> tokens_;  // node_tokens_ per node
  std::vector<PageId> pages_;    // slots() per node
  std::vector<Node> free_nodes_;
  std::vector<Home> homes_;                      // by page
  std::vector<uint64_t> loose_stamps_;           // by page: its entry in loose_
  std::set<std::pair<uint64_t, Node>> leaves_;   // evictable ones, by age
  std::set<std::pair<uint64_t, PageId>> loose_;  // pages of window and recurrent groups that only the tree uses, by age
  uint64_t clock_ = 0;
  int cached_ = 0;
};

}  // namespace quern
