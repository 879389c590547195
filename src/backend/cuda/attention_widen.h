// Keys and values of 8-bit floats that many query rows of prompts read become half floats once, before attention.
#pragma once

#include "backend/cuda/attention_split.h"

namespace quern::cuda {

/// How many pages have a place, and the memory of all that widen_prompts() writes: for each segment the place of what
/// would be its page 0, whether it was done, and pages.
int widened_capacity(const PagedKv& kv, const Segments& segments);
int64_t widened_bytes(const PagedKv& kv, const Segments& segments);

/// Writes the pages that prompts see to split.widened, if all have a place and attention gains more than that takes.
void widen_prompts(Queue queue, const SplitCall& split);

/// The same call, which reads what was written.
SplitCall on_widened(const SplitCall& split);

}  // namespace quern::cuda
