// Routed experts.
#include "model/block.h"

namespace quern {

Result<std::unique_ptr<Block>> make_block(const MoeSpec&, const BlockPlace& place, Weights&) {
  return Error{"layer " + std::to_string(place.layer) + " has routed experts, which this build does not compute yet"};
}

}  // namespace quern
