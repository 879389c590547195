// PagePool: which pages of the KV pool are free, and how many users the others have. Thread: engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace quern {

/// No page: an entry of a table that is behind the window, or not granted yet.
constexpr PageId no_page{-1};

/// A group of KV layers of equal lifetime, as scheduler and cache see it: tokens and lifetimes, no meaning.
struct GroupSpec {
  enum class Kind : uint8_t { full, window, recurrent };
  Kind kind = Kind::full;
  int32_t window = 0;          // tokens a query can see back, itself included
  int32_t page_tokens = 16;    // recurrent: tokens between two snapshots, a multiple of the other groups' page_tokens
  int32_t snapshot_pages = 1;  // recurrent: they hold a row's state; the state itself is no page, it lives on the row

  bool operator==(const GroupSpec&) const = default;
};

/// All pages have one size and every group draws from this pool. A page is only released when no step in flight reads
/// or writes it, so a free page can be granted at once.
class PagePool {
 public:
  explicit PagePool(int pages) : users_(static_cast<size_t>(pages), 0) {
    free_.reserve(users_.size());
    for (int i = pages; i-- > 0;) free_.push_back(PageId{i});
  }

  int size() const { return static_cast<int>(users_.size()); }
  int free() const { return static_cast<int>(free_.size()); }
  int users(PageId page) const { return users_[at(page)]; }

  /// A free page, now with one user. There must be one.
  PageId take() {
    CHECK(!free_.empty());
    const PageId page = free_.back();
    free_.pop_back();
    users_[at(page)] = 1;
    return page;
  }
  void use(PageId page) {
    DCHECK(users(page) > 0);
    ++users_[at(page)];
  }
  /// Users left; with the last one the page becomes free.
  int release(PageId page) {
    DCHECK(users(page) > 0);
    const int left = --users_[at(page)];
    if (left == 0) free_.push_back(page);
    return left;
  }

  /// Empty, or what is wrong: every page must have exactly `users[page]` users, and be free when that is none.
  std::string check(const std::vector<int>& users) const;

 private:
  static size_t at(PageId page) { return static_cast<size_t>(index(page)); }

  std::vector<int32_t> users_;
  std::vector<PageId> free_;
};

inline std::string PagePool::check(const std::vector<int>& users) const {
  std::vector<bool> is_free(users_.size(), false);
  for (const PageId page : free_) {
    if (is_free[at(page)]) return "page " + std::to_string(index(page)) + " is free twice";
    is_free[at(page)] = true;
  }
  for (size_t i = 0; i < users_.size(); ++i) {
    if (users_[i] != users[i] || is_free[i] != (users[i] == 0)) {
      return "page " + std::to_string(i) + " counts " + std::to_string(users_[i]) + " users and has " +
             std::to_string(users[i]) + (is_free[i] ? ", and is free" : "");
    }
  }
  return "";
}

}  // namespace quern
