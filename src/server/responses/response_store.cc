#include "server/responses/response_store.h"

#include <iterator>
#include <utility>

namespace quern {
namespace {

constexpr size_t kItemBytes = 64;       // of an item beside its text
constexpr size_t kResponseBytes = 512;  // of an answer beside its texts

size_t size_of(const StoredResponse& response) {
  size_t bytes = kResponseBytes + response.body.size();
  for (const StoredResponse::Text& item : response.items) bytes += kItemBytes + item->size();
  return bytes;
}

}  // namespace

void ResponseStore::put(const std::string& owner, const std::string& id, StoredResponse response) {
  const size_t bytes = size_of(response);
  if (bytes > max_bytes_ || max_responses_ == 0) return;
  const auto kept = std::make_shared<const StoredResponse>(std::move(response));
  state_.with([&](State& state) {
    if (const auto old = state.by_id.find(id); old != state.by_id.end()) drop(state, old->second);
    while (state.bytes + bytes > max_bytes_ || state.entries.size() >= max_responses_)
      drop(state, std::prev(state.entries.end()));
    state.entries.push_front({owner, id, kept, bytes});
    state.by_id[id] = state.entries.begin();
    state.bytes += bytes;
  });
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& owner, const std::string& id) {
  return state_.with([&](State& state) -> std::shared_ptr<const StoredResponse> {
    const auto found = state.by_id.find(id);
    if (found == state.by_id.end() || found->second->owner != owner) return nullptr;
    state.entries.splice(state.entries.begin(), state.entries, found->second);
    return found->second->response;
  });
}

bool ResponseStore::erase(const std::string& owner, const std::string& id) {
  return state_.with([&](State& state) {
    const auto found = state.by_id.find(id);
    if (found == state.by_id.end() || found->second->owner != owner) return false;
    drop(state, found->second);
    return true;
  });
}

void ResponseStore::drop(State& state, std::list<Entry>::iterator entry) {
  state.bytes -= entry->bytes;
  state.by_id.erase(entry->id);
  state.entries.erase(entry);
}

}  // namespace quern
