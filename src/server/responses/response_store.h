// ResponseStore: answers that clients come back to by their ids, with the conversation that led to them. Bounded: the
// least recently used go first. Any thread.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/guarded.h"

namespace quern {

struct StoredResponse {
  using Text = std::shared_ptr<const std::string>;  // shared by all answers of one conversation

  std::string body;         // the response object
  std::vector<Text> items;  // of the conversation, each as JSON: all input, then the output
  size_t inputs = 0;        // so many of them are input
};

class ResponseStore {
 public:
  ResponseStore(size_t max_bytes, size_t max_responses) : max_bytes_(max_bytes), max_responses_(max_responses) {}

  /// One that is larger than the whole store is not kept. Items that answers share count for each of them.
  void put(const std::string& owner, const std::string& id, StoredResponse response);
  /// What others own is not found.
  std::shared_ptr<const StoredResponse> find(const std::string& owner, const std::string& id);
  bool erase(const std::string& owner, const std::string& id);

 private:
  struct Entry {
    std::string owner;
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    size_t bytes = 0;
  };
  struct State {
    std::list<Entry> entries;  // the most recently used first
    std::unordered_map<std::string, std::list<Entry>::iterator> by_id;
    size_t bytes = 0;
  };
  static void drop(State& state, std::list<Entry>::iterator entry);

  const size_t max_bytes_;
  const size_t max_responses_;
  Guarded<State> state_;
};

}  // namespace quern
