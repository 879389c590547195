#include "engine/sequence.h"

#include "base/check.h"

namespace quern {

namespace {

int pages_of(int tokens, int page_tokens) { return (tokens + page_tokens - 1) / page_tokens; }

}  // namespace

Kv::Kv(std::vector<GroupSpec> specs, int pages, int step_tokens)
    : groups(std::move(specs)), pool(pages), tree(groups, pool), max_step_tokens(step_tokens) {
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind != GroupSpec::Kind::recurrent) continue;
    CHECK(recurrent_group < 0);
    recurrent_group = static_cast<int>(g);
  }
}

int Kv::peak(size_t group, int tokens) const {
  const GroupSpec& spec = groups[group];
  if (spec.kind == GroupSpec::Kind::recurrent) return 0;
  const int all = pages_of(tokens, spec.page_tokens);
  if (spec.kind == GroupSpec::Kind::full) return all;
  return std::min(all, (spec.window - 1 + max_step_tokens) / spec.page_tokens + 2);
}

int Kv::peak(int tokens) const {
  int sum = 0;
  for (size_t g = 0; g < groups.size(); ++g) sum += peak(g, tokens);
  return sum;
}

void SequencePages::adopt(const PrefixTree::Match& match, std::vector<Borrowed>& borrowed) {
  const PrefixTree& tree = kv_.tree;
  const int whole = static_cast<int>(match.nodes.size());
  for (size_t g = 0; g < kv_.groups.size(); ++g) {
    const GroupSpec& spec = kv_.groups[g];
    if (spec.kind == GroupSpec::Kind::recurrent) continue;
    const int per_node = tree.node_tokens() / spec.page_tokens;
    if (spec.kind == GroupSpec::Kind::window) {
      first_[g] = std::min(whole * per_node, std::max(0, match.tokens - spec.window + 1) / spec.page_tokens);
    }
    tables_[g].assign(size_t(whole * per_node), no_page);
    for (int i = first_[g]; i < whole * per_node; ++i) {
      const PageId page = tree.page(match.nodes[size_t(i / per_node)], tree.first_slot(g) + i % per_node);
      kv_.tree.use(page);
      tables_[g][size_t(i)] = page;
    }
  }
  nodes_ = whole;
  if (whole > 0) move_to(match.nodes.back());
  borrow(match, borrowed);
}

/// The snapshot at the end of the whole nodes, or the partial node: all of it, so that it is either in use or cache.
void SequencePages::borrow(const PrefixTree::Match& match, std::vector<Borrowed>& borrowed) {
  const PrefixTree& tree = kv_.tree;
  const int whole = nodes_ * tree.node_tokens();
  for (size_t g = 0; g < kv_.groups.size() && match.tokens > 0; ++g) {
    const GroupSpec& spec = kv_.groups[g];
    const bool recurrent = spec.kind == GroupSpec::Kind::recurrent;
    const PrefixTree::Node node = recurrent && match.partial == PrefixTree::none ? match.nodes.back() : match.partial;
    for (int slot = tree.first_slot(g); node != PrefixTree::none && slot < tree.first_slot(g + 1); ++slot) {
      const PageId page = tree.page(node, slot);
      if (page == no_page) continue;
      const int begin = whole + (slot - tree.first_slot(g)) * spec.page_tokens;
      Borrowed& one = borrowed.emplace_back(Borrowed{page, g, -1, 0});
      if (recurrent && match.partial == PrefixTree::none) one.entry = 0;
      if (!recurrent && begin < match.tokens) {
        one.entry = begin / spec.page_tokens;
        one.tokens = std::min(spec.page_tokens, match.tokens - begin);
      }
      kv_.tree.use(page);
    }
  }
}

void SequencePages::announce(RowId row, StepPlan& plan) const {
  for (size_t g = 0; g < tables_.size(); ++g) {
    for (int i = first_[g]; i < static_cast<int>(tables_[g].size()); ++i) {
      plan.pages.push_back({row, static_cast<int32_t>(g), i, tables_[g][size_t(i)]});
    }
  }
}

void SequencePages::copy(const std::vector<Borrowed>& borrowed, RowId row, StepPlan& plan) const {
  StateCopy state{row, true, {}};
  for (const Borrowed& one : borrowed) {
    if (one.entry < 0) continue;
    if (static_cast<int>(one.group) == kv_.recurrent_group) {
      state.pages.push_back(one.page);
    } else {
      plan.copies.push_back(
          {static_cast<int32_t>(one.group), one.page, tables_[one.group][size_t(one.entry)], one.tokens});
    }
  }
  if (!state.pages.empty()) plan.states.push_back(std::move(state));
}

int SequencePages::wanted(size_t group, int end) const {
  const GroupSpec& spec = kv_.groups[group];
  return spec.kind == GroupSpec::Kind::recurrent ? 0 : pages_of(end, spec.page_tokens);
}

int SequencePages::missing(int end) const {
  int sum = 0;
  for (size_t g = 0; g < tables_.size(); ++g) sum += std::max(0, wanted(g, end) - static_cast<int>(tables_[g].size()));
  return sum;
}

void SequencePages::grant(int end, RowId row, StepPlan& plan) {
  for (size_t g = 0; g < tables_.size(); ++g) {
    const int wanted_pages = wanted(g, end);
    while (static_cast<int>(tables_[g].size()) < wanted_pages) {
      const PageId page = kv_.pool.take();
      plan.pages.push_back({row, static_cast<int32_t>(g), static_cast<int32_t>(tables_[g].size()), page});
      tables_[g].push_back(page);
    }
  }
}

int SequencePages::still_needs(int end) const {
  int sum = 0;
  for (size_t g = 0; g < tables_.size(); ++g) {
    const int held = static_cast<int>(tables_[g].size()) - first_[g];
    const int left = std::max(0, wanted(g, end) - static_cast<int>(tables_[g].size()));
    sum += std::clamp(kv_.peak(g, end) - held, 0, left);
  }
  return sum;
}

void SequencePages::publish(std::span<const int32_t> tokens, int computed, bool last) {
  PrefixTree& tree = kv_.tree;
  const int step = tree.node_tokens();
  std::vector<PageId> pages(size_t(tree.slots()), no_page);
  PrefixTree::Node parent = node_;
  for (int i = nodes_; (i + 1) * step <= computed; ++i) {
    bool own = true;
    for (size_t g = 0; g < tables_.size(); ++g) {
      if (kv_.groups[g].kind == GroupSpec::Kind::recurrent) continue;
      const int per_node = tree.first_slot(g + 1) - tree.first_slot(g);
      for (int k = 0; k < per_node; ++k) pages[size_t(tree.first_slot(g) + k)] = tables_[g][size_t(i * per_node + k)];
    }
    parent = tree.insert(space_, parent, tokens.subspan(size_t(i * step), size_t(step)), pages, !last);
    for (size_t g = 0; g < tables_.size(); ++g) {
      const int slot = tree.first_slot(g);
      own = own && (kv_.groups[g].kind != GroupSpec::Kind::full || tree.page(parent, slot) == pages[size_t(slot)]);
    }
    if (!last && !own) return;
    if (!last) {
      nodes_ = i + 1;
      move_to(parent);
    }
  }
}

void SequencePages::move_to(PrefixTree::Node node) {
  if (node != PrefixTree::none) kv_.tree.pin(node);
  if (node_ != PrefixTree::none) kv_.tree.unpin(node_);
  node_ = node;
}

void SequencePages::slide(int computed) {
  for (size_t g = 0; g < tables_.size(); ++g) {
    const GroupSpec& spec = kv_.groups[g];
    if (spec.kind != GroupSpec::Kind::window) continue;
    const int first =
        std::min(static_cast<int>(tables_[g].size()), std::max(0, computed - spec.window + 1) / spec.page_tokens);
    for (; first_[g] < first; ++first_[g]) {
      kv_.tree.release(tables_[g][size_t(first_[g])]);
      tables_[g][size_t(first_[g])] = no_page;
    }
  }
}

void SequencePages::release() {
  // From the end, so that of what becomes cache the beginning is evicted last.
  for (size_t g = 0; g < tables_.size(); ++g) {
    for (size_t i = tables_[g].size(); i-- > size_t(first_[g]);) kv_.tree.release(tables_[g][i]);
    tables_[g].clear();
    first_[g] = 0;
  }
  move_to(PrefixTree::none);
  nodes_ = 0;
}

void SequencePages::give_snapshot(std::span<const PageId> pages, std::span<const int32_t> prefix) {
  const PrefixTree::Node node = kv_.tree.find(space_, prefix);
  if (node != PrefixTree::none) {
    kv_.tree.give_snapshot(node, size_t(kv_.recurrent_group), pages);
  } else {
    for (const PageId page : pages) kv_.tree.release(page);
  }
}

void SequencePages::count(std::vector<int>& users) const {
  for (size_t g = 0; g < tables_.size(); ++g) {
    for (size_t i = size_t(first_[g]); i < tables_[g].size(); ++i) ++users[size_t(index(tables_[g][i]))];
  }
}

}  // namespace quern
