#include "text/subword/vocabulary.h"

#include <bit>

#include "text/subword/byte_alphabet.h"
#include "text/subword/hash.h"
#include "text/tokenizer/decode.h"

namespace quern {

Result<Vocabulary> Vocabulary::make(const std::vector<TokenEntry>& entries, const TokenDecoder& decoder,
                                    bool byte_level) {
  if (entries.empty()) return Error{"the tokenizer's vocabulary is empty"};
  Vocabulary made;
  made.byte_level_ = byte_level;
  made.strips_leading_space_ = decoder.strips_leading_space();
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
      made.bytes_.block += entry.decoded.empty() ? entry.text : entry.decoded;
    } else if (!entry.text.empty()) {
      decoder.append(made.bytes_.block, entry.decoded.empty() ? entry.text : entry.decoded);
    }
    made.bytes_.ends.push_back(static_cast<uint32_t>(made.bytes_.block.size()));
    if (!entry.literal && !entry.text.empty() && !byte_level) {
      unused.clear();
      decoder.append_first(unused, entry.decoded.empty() ? entry.text : entry.decoded);
      if (unused != made.first_bytes(id)) made.first_bytes_[id] = unused;
    }
    if (entry.literal && !entry.decoded.empty()) made.first_bytes_[id] = entry.decoded;
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

std::string_view Vocabulary::first_bytes(int32_t id) const {
  const auto own = first_bytes_.find(id);
  if (own != first_bytes_.end()) return own->second;
  std::string_view bytes = bytes_.at(id);
  if (strips_leading_space_ && bytes.starts_with(' ')) bytes.remove_prefix(1);
  return bytes;
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

std::array<int32_t, 256> Vocabulary::byte_tokens() const {
  std::array<int32_t, 256> tokens{};
  for (int byte = 0; byte < 256; ++byte) {
    static constexpr char digits[] = "0123456789ABCDEF";
    const char fallback[] = {'<', '0', 'x', digits[byte / 16], digits[byte % 16], '>'};
    const auto self = static_cast<char>(byte);
    tokens[static_cast<size_t>(byte)] = byte_level_ ? find_key({&self, 1}) : find_text({fallback, 6});
  }
  return tokens;
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
