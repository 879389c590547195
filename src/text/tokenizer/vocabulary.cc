#include "text/tokenizer/vocabulary.h"

#include <bit>

#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/decode.h"
#include "text/tokenizer/hash.h"

namespace quern {

Result<Vocabulary> Vocabulary::make(const std::vector<TokenEntry>& entries, const TokenDecoder& decoder,
                                    bool byte_level) {
  if (entries.empty()) return Error{"the tokenizer's vocabulary is empty"};
  Vocabulary made;
  made.byte_level_ = byte_level;
  size_t total = 0;
  for (const TokenEntry& entry : entries) total += entry.text.size();
  if (total > (size_t{1} << 30)) return Error{"the tokenizer's vocabulary has more than 1 GiB of text"};
  made.slots_.resize(std::bit_ceil(entries.size() * 2));
  made.texts_.block.reserve(total);
  made.bytes_.block.reserve(total);
  made.texts_.ends.reserve(entries.size());
  made.bytes_.ends.reserve(entries.size());
  std::string unused;
  for (size_t i = 0; i < entries.size(); ++i) {
    const TokenEntry& entry = entries[i];
    const auto id = static_cast<int32_t>(i);
    made.texts_.block += entry.text;
    made.texts_.ends.push_back(static_cast<uint32_t>(made.texts_.block.size()));
    if (entry.literal) {
      made.bytes_.block += entry.text;
    } else if (!entry.text.empty()) {
      decoder.append(made.bytes_.block, entry.decoded.empty() ? entry.text : entry.decoded);
    }
    made.bytes_.ends.push_back(static_cast<uint32_t>(made.bytes_.block.size()));
    made.special_.push_back(entry.special);
    if (entry.text.empty()) continue;
    unused.clear();
    // In a byte-level vocabulary the model cannot produce a token whose spelling is no bytes.
    const bool by_key =
        entry.in_model && (!byte_level || (append_as_bytes(unused, entry.text) && unused == made.bytes(id)));
    if (by_key) {
      made.insert_key(id);
    } else {
      made.by_text_[std::string(entry.text)] = id;
    }
  }
  return made;
}

/// Of equal keys the last one counts.
void Vocabulary::insert_key(int32_t id) {
  const std::string_view wanted = key(id);
  const uint64_t hash = hash_bytes(wanted);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].id >= 0 && key(slots_[at].id) != wanted) at = (at + 1) & mask;
  slots_[at] = {static_cast<uint32_t>(hash >> 32), id};
}

int32_t Vocabulary::find_key(std::string_view wanted) const {
  const uint64_t hash = hash_bytes(wanted);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].id >= 0; at = (at + 1) & mask) {
    if (slots_[at].tag == tag && key(slots_[at].id) == wanted) return slots_[at].id;
  }
  return -1;
}

int32_t Vocabulary::find_text(std::string_view wanted) const {
  const auto found = by_text_.find(std::string(wanted));
  if (found != by_text_.end()) return found->second;
  if (!byte_level_) return find_key(wanted);
  std::string bytes;
  if (!append_as_bytes(bytes, wanted)) return -1;
  const int32_t id = find_key(bytes);
  return id >= 0 && text(id) == wanted ? id : -1;
}

}  // namespace quern
