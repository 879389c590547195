// PrefixTree and PagePool: who uses a page, what matches, what goes first.
#include "cache/prefix_tree.h"

#include <gtest/gtest.h>
#include <vector>

#include "cache/page_pool.h"

namespace quern {
namespace {

const PrefixTree::Namespace space;

/// A tree over one full group of 4 tokens a page, unless other groups are given.
struct Rig {
  explicit Rig(int pages, std::vector<GroupSpec> groups = {{GroupSpec::Kind::full, 0, 4}})
      : pool(pages), tree(std::move(groups), pool) {}

  /// Inserts `tokens` page by page as a sequence that then ends would; the nodes.
  std::vector<PrefixTree::Node> insert(const std::vector<int32_t>& tokens) {
    std::vector<PrefixTree::Node> nodes;
    std::vector<PageId> taken;
    PrefixTree::Node parent = PrefixTree::none;
    for (size_t i = 0; i + 4 <= tokens.size(); i += 4) {
      std::vector<PageId> pages;
      for (int slot = 0; slot < tree.slots(); ++slot) pages.push_back(taken.emplace_back(pool.take()));
      parent = tree.insert(space, parent, std::span(tokens).subspan(i, 4), pages, false);
      nodes.push_back(parent);
    }
    for (auto page = taken.rbegin(); page != taken.rend(); ++page) tree.release(*page);
    check({});
    return nodes;
  }
  int matched(const std::vector<int32_t>& tokens) const { return tree.match(space, tokens).tokens; }
  /// `held`: pages that the test uses.
  void check(const std::vector<PageId>& held) const {
    std::vector<int> users(static_cast<size_t>(pool.size()), 0);
    for (const PageId page : held) ++users[static_cast<size_t>(index(page))];
    EXPECT_EQ(tree.count(users), "");
    EXPECT_EQ(pool.check(users), "");
  }

  PagePool pool;
  PrefixTree tree;
};

TEST(PagePool, CountsUsers) {
  PagePool pool(2);
  const PageId page = pool.take();
  pool.use(page);

  EXPECT_EQ(pool.release(page), 1);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.release(page), 0);
  EXPECT_EQ(pool.free(), 2);
  EXPECT_EQ(pool.check({0, 0}), "");
  EXPECT_NE(pool.check({1, 0}), "");
}

// S31
TEST(PrefixTree, MatchesToTheToken) {
  Rig rig(10);
  rig.insert({1, 2, 3, 4, 5, 6, 7, 8});

  EXPECT_EQ(rig.matched({1, 2, 3, 4, 5, 6, 7, 8}), 8);
  EXPECT_EQ(rig.matched({1, 2, 3, 4, 5, 6, 7}), 7);
  EXPECT_EQ(rig.matched({1, 2, 3, 4, 5, 6, 9, 8, 1}), 6);
  EXPECT_EQ(rig.matched({1, 9}), 1);
  EXPECT_EQ(rig.matched({2, 2, 3, 4}), 0);
  EXPECT_EQ(rig.tree.match({1, 0}, std::vector<int32_t>{1, 2, 3, 4}).tokens, 0);
}

TEST(PrefixTree, FindsTheChildThatSharesMost) {
  Rig rig(40);
  for (int i = 0; i < 9; ++i) rig.insert({5, i, i + 1, i + 2});

  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(rig.matched({5, i, i + 1, 99}), 3);
    EXPECT_EQ(rig.matched({5, i, 99, 99}), 2);
  }
  EXPECT_EQ(rig.matched({5, 99}), 1);
}

TEST(PrefixTree, KeepsAPageThatASequenceStillUses) {
  Rig rig(2);
  const auto nodes = rig.insert({1, 2, 3, 4, 5, 6, 7, 8});
  const PageId page = rig.tree.page(nodes[1], 0);
  const PageId parent = rig.tree.page(nodes[0], 0);
  rig.tree.use(parent);
  rig.tree.use(page);

  EXPECT_EQ(rig.tree.cached(), 0);
  EXPECT_FALSE(rig.tree.make_free(1));
  rig.check({page, parent});
  rig.tree.release(page);
  EXPECT_TRUE(rig.tree.make_free(1));
  EXPECT_EQ(rig.matched({1, 2, 3, 4, 5, 6, 7, 8}), 4);
  rig.check({parent});
}

TEST(PrefixTree, EvictsTheLeafReleasedLongestAgo) {
  Rig rig(6);
  const std::vector<int32_t> first = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int32_t> second = {1, 2, 3, 4, 9, 9, 9, 9};
  const auto nodes = rig.insert(first);
  rig.insert({7, 7, 7, 7});
  rig.insert(second);
  EXPECT_EQ(rig.pool.free(), 2);
  rig.tree.use(rig.tree.page(nodes[1], 0));
  rig.tree.release(rig.tree.page(nodes[1], 0));

  ASSERT_TRUE(rig.tree.make_free(3));

  EXPECT_EQ(rig.matched({7, 7, 7, 7}), 0);
  EXPECT_EQ(rig.matched(first), 8);
  ASSERT_TRUE(rig.tree.make_free(4));
  EXPECT_EQ(rig.matched(second), 4);
  EXPECT_EQ(rig.matched(first), 8);
  rig.check({});
}

TEST(PrefixTree, DoesWithoutWindowPagesBehindTheWindow) {
  Rig rig(8, {{GroupSpec::Kind::full, 0, 4}, {GroupSpec::Kind::window, 5, 4}});
  const auto nodes = rig.insert({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  const auto whole = [&](int count) {
    std::vector<int32_t> tokens;
    for (int i = 1; i <= count; ++i) tokens.push_back(i);
    return tokens;
  };
  // The window pages of the first two nodes are the oldest, all others are in use.
  std::vector<PageId> held;
  for (size_t i = 0; i < 4; ++i) {
    for (int slot = 0; slot < 2; ++slot) {
      if (slot == 0 || i >= 2) held.push_back(rig.tree.page(nodes[i], slot));
    }
  }
  for (const PageId page : held) rig.tree.use(page);

  ASSERT_TRUE(rig.tree.make_free(2));
  EXPECT_FALSE(rig.tree.make_free(3));

  EXPECT_EQ(rig.matched(whole(16)), 16);  // sees tokens 12..16, which are there
  EXPECT_EQ(rig.matched(whole(12)), 12);  // sees 8 by its last query only: 12 - 5 + 1 = token index 8 and later
  EXPECT_EQ(rig.matched(whole(8)), 0);
  rig.check(held);
}

TEST(PrefixTree, ASnapshotIsUsedAndEvictedAsAWhole) {
  Rig rig(10, {{GroupSpec::Kind::full, 0, 4}, {GroupSpec::Kind::recurrent, 0, 8, 3}});
  std::vector<PageId> pages{rig.pool.take(), no_page, no_page, no_page};
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  const PrefixTree::Node node = rig.tree.insert(space, PrefixTree::none, tokens, pages, false);
  EXPECT_EQ(rig.matched(tokens), 0);
  EXPECT_EQ(rig.tree.match(space, tokens).known_tokens, 4);
  const std::vector<PageId> snapshot{rig.pool.take(), rig.pool.take(), rig.pool.take()};

  rig.tree.give_snapshot(node, 1, snapshot);

  EXPECT_EQ(rig.matched(tokens), 4);
  EXPECT_EQ(rig.matched({1, 2, 3}), 0);  // a state is of a whole node
  EXPECT_EQ(rig.tree.cached(), 3);
  rig.check({pages[0]});
  ASSERT_TRUE(rig.tree.make_free(7));
  EXPECT_EQ(rig.pool.free(), 9);
  EXPECT_EQ(rig.matched(tokens), 0);
  rig.check({pages[0]});
}

TEST(PrefixTree, ANodeTakesNewPagesForThoseThatNobodyUses) {
  Rig rig(4);
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  rig.insert(tokens);
  const std::vector<PageId> mine{rig.pool.take()};
  const std::vector<PageId> theirs{rig.pool.take()};

  const PrefixTree::Node node = rig.tree.insert(space, PrefixTree::none, tokens, mine, true);
  EXPECT_EQ(rig.tree.page(node, 0), mine[0]);
  rig.tree.insert(space, PrefixTree::none, tokens, theirs, true);

  EXPECT_EQ(rig.tree.page(node, 0), mine[0]);  // in use
  EXPECT_EQ(rig.pool.free(), 2);
  rig.check({mine[0], theirs[0]});
  rig.tree.release(mine[0]);
  rig.tree.release(theirs[0]);
  EXPECT_EQ(rig.tree.cached(), 1);
  rig.check({});
}

TEST(PrefixTree, ForgetsAllThatNobodyUses) {
  Rig rig(6);
  const auto nodes = rig.insert({1, 2, 3, 4, 5, 6, 7, 8});
  rig.insert({3, 3, 3, 3});
  const PageId page = rig.tree.page(nodes[0], 0);
  rig.tree.use(page);

  rig.tree.clear();

  EXPECT_EQ(rig.pool.free(), 5);
  EXPECT_EQ(rig.matched({1, 2, 3, 4, 5}), 4);
  rig.check({page});
}

}  // namespace
}  // namespace quern
