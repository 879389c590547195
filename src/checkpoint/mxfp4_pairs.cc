#include "checkpoint/mxfp4_pairs.h"

#include <fmt/format.h>
#include <map>

#include "checkpoint/wording.h"

namespace quern {
namespace {

constexpr std::string_view blocks_ending = "_blocks";
constexpr std::string_view scales_ending = "_scales";
constexpr int64_t block_bytes = 16;

std::string stem_of(const StoredTensor& tensor, std::string_view ending) {
  if (tensor.type != "U8" || !tensor.name.ends_with(ending)) return "";
  return tensor.name.substr(0, tensor.name.size() - ending.size());
}

}  // namespace

Result<std::vector<StoredTensor>> join_mxfp4_pairs(std::vector<StoredTensor> tensors, const std::string& where) {
  std::map<std::string, const StoredTensor*> scales;
  std::map<std::string, const StoredTensor*> blocks;
  for (const StoredTensor& tensor : tensors) {
    if (const std::string stem = stem_of(tensor, scales_ending); !stem.empty()) scales[stem] = &tensor;
    if (const std::string stem = stem_of(tensor, blocks_ending); !stem.empty()) blocks[stem] = &tensor;
  }
  std::vector<StoredTensor> joined;
  for (const StoredTensor& tensor : tensors) {
    const std::string stem = stem_of(tensor, blocks_ending);
    const auto of_blocks = scales.find(stem);
    if (stem.empty() || of_blocks == scales.end()) {
      const bool taken = blocks.contains(stem_of(tensor, scales_ending));
      if (!taken) joined.push_back(tensor);
      continue;
    }
    StoredTensor one = tensor;
    const std::vector<int64_t>& scale_shape = of_blocks->second->shape;
    const bool fit = one.shape.size() >= 3 && one.shape.back() == block_bytes &&
                     std::vector<int64_t>(one.shape.begin(), one.shape.end() - 1) == scale_shape;
    if (!fit) {
      return Error{fmt::format("{}: tensor {} is {}, expected {} blocks of 16 bytes, for each of which {} has a scale",
                               where, quoted(tensor.name), shape_text(tensor.shape), shape_text(scale_shape),
                               quoted(of_blocks->second->name))};
    }
    one.name = stem + ".weight";
    one.type = mxfp4_blocks_type;
    one.shape = scale_shape;
    one.shape.back() *= 2 * block_bytes;
    one.scales = of_blocks->second->bytes;
    joined.push_back(std::move(one));
  }
  return joined;
}

}  // namespace quern
