#include "apps/measure/base_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <utility>

namespace quern {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t magic = 0x314C4B4E52455551;  // "QUERNKL1"
constexpr int32_t most_code = 65535;
constexpr float step = 32.0F / most_code;  // what is e^32 less likely than the best counts as that

struct StoredHead {
  uint64_t magic = 0;
  uint64_t checksum = 0;  // of what follows and the tokens
  int32_t vocab = 0;
  int32_t context = 0;
  int32_t stride = 0;
  int32_t bos = -1;
  int64_t tokens = 0;
  int64_t scored = 0;
  int64_t unused[2] = {};
};
static_assert(sizeof(StoredHead) == 64);

/// FNV-1a.
uint64_t hash(uint64_t start, const void* data, size_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) start = (start ^ byte[i]) * 0x100000001B3U;
  return start;
}

uint64_t checksum(const StoredHead& head, std::span<const int32_t> tokens) {
  const uint64_t first = hash(0xCBF29CE484222325U, &head.vocab, sizeof head - offsetof(StoredHead, vocab));
  return hash(first, tokens.data(), tokens.size_bytes());
}

int64_t record_bytes(const BaseHead& head) { return int64_t{2} * head.vocab; }

int64_t first_record(int64_t tokens) { return static_cast<int64_t>(sizeof(StoredHead)) + 4 * tokens; }

}  // namespace

BaseWriter::BaseWriter(std::string path, const BaseHead& head, std::span<const int32_t> tokens)
    : path_(std::move(path)),
      head_(head),
      tokens_(tokens.begin(), tokens.end()),
      file_(path_, std::ios::binary | std::ios::trunc),
      codes_(static_cast<size_t>(head.vocab)) {}

Result<std::unique_ptr<BaseWriter>> BaseWriter::create(const std::string& path, const BaseHead& head,
                                                       std::span<const int32_t> tokens) {
  auto writer = std::unique_ptr<BaseWriter>(new BaseWriter(path, head, tokens));
  if (!writer->file_) return file_error(path);
  return writer;
}

int64_t BaseWriter::bytes() const {
  return first_record(static_cast<int64_t>(tokens_.size())) + head_.scored * record_bytes(head_);
}

void BaseWriter::write(int64_t ordinal, std::span<const float> logits) {
  const auto best = std::ranges::max_element(logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    codes_[i] = static_cast<uint16_t>(std::clamp((*best - logits[i]) / step + 0.5F, 1.0F, float{most_code}));
  }
  codes_[static_cast<size_t>(best - logits.begin())] = 0;
  file_.seekp(first_record(static_cast<int64_t>(tokens_.size())) + ordinal * record_bytes(head_));
  file_.write(reinterpret_cast<const char*>(codes_.data()), record_bytes(head_));
}

Status BaseWriter::finish() {
  StoredHead head;
  head.magic = magic;
  head.vocab = head_.vocab;
  head.context = head_.sizes.context;
  head.stride = head_.sizes.stride;
  head.bos = head_.bos;
  head.tokens = static_cast<int64_t>(tokens_.size());
  head.scored = head_.scored;
  head.checksum = checksum(head, tokens_);
  file_.seekp(sizeof head);
  file_.write(reinterpret_cast<const char*>(tokens_.data()), 4 * head.tokens);
  file_.flush();
  file_.seekp(0);
  file_.write(reinterpret_cast<const char*>(&head), sizeof head);
  file_.close();
  if (!file_) return Error{fmt::format("{}: {} bytes could not all be written; is the disk full?", path_, bytes())};
  return {};
}

Result<BaseRun> BaseRun::open(const std::string& path) {
  BaseRun run;
  ASSIGN_OR_RETURN(run.file_, MappedFile::open(path));
  const std::span<const std::byte> bytes = run.file_.bytes();
  StoredHead head;
  if (bytes.size() >= sizeof head) std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != magic) return Error{path + ": this is no finished base run; make one with --save-base"};
  const auto size = static_cast<int64_t>(bytes.size());
  const bool sane = head.vocab > 0 && head.tokens > 0 && head.tokens <= size / 4 && head.scored > 0 &&
                    head.scored <= size / 2 / head.vocab;
  const BaseHead wanted{head.vocab, {head.context, head.stride}, head.bos, head.scored};
  if (!sane || first_record(head.tokens) + head.scored * record_bytes(wanted) != size) {
    return Error{
        fmt::format("{}: its {} bytes are not what its head says; make it again with --save-base", path, size)};
  }
  run.head_ = wanted;
  run.tokens_.resize(static_cast<size_t>(head.tokens));
  std::memcpy(run.tokens_.data(), bytes.data() + sizeof head, static_cast<size_t>(4 * head.tokens));
  if (checksum(head, run.tokens_) != head.checksum) {
    return Error{path + ": its checksum is wrong; make it again with --save-base"};
  }
  run.codes_ = bytes.data() + first_record(head.tokens);
  for (int32_t code = 0; code <= most_code; ++code) {
    run.weights_.push_back(std::exp(-step * static_cast<float>(code)));
  }
  return run;
}

/// Both are normalised, so that their divergence is never below 0 however the codes are rounded.
Difference BaseRun::compare(int64_t ordinal, std::span<const float> logits, int32_t follower, double logprob) const {
  const auto count = static_cast<size_t>(head_.vocab);
  std::vector<uint16_t> codes(count);
  std::memcpy(codes.data(), codes_ + ordinal * record_bytes(head_), 2 * count);
  const auto best = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
  const float reference = logits[best];  // as for the codes, so that their difference is small
  double total = 0;
  double weighted = 0;  // of weight * (saved logit - logit), both relative
  for (size_t begin = 0; begin < count; begin += 1024) {
    float part = 0;
    float part_weighted = 0;
    for (size_t i = begin; i < std::min(count, begin + 1024); ++i) {
      const float weight = weights_[codes[i]];
      part += weight;
      part_weighted += weight * (-step * static_cast<float>(codes[i]) - (logits[i] - reference));
    }
    total += static_cast<double>(part);
    weighted += static_cast<double>(part_weighted);
  }
  Difference difference;
  const double normalizer = std::log(total);
  const double best_logprob = logprob + static_cast<double>(reference - logits[static_cast<size_t>(follower)]);
  difference.kl = std::max(0.0, weighted / total - normalizer - best_logprob);
  difference.base_logprob =
      static_cast<double>(-step * static_cast<float>(codes[static_cast<size_t>(follower)])) - normalizer;
  difference.same_best = codes[best] == 0;
  return difference;
}

}  // namespace quern
