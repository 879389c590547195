#include "ops/sample.h"

#include "ops/cost.h"

namespace quern {

int64_t sample_scratch_bytes(Queue queue, int32_t rows, int32_t vocab) {
  int64_t bytes = 0;
  kernels::sample_scratch.find(queue.kind)(queue, rows, vocab, bytes);
  return (bytes + 63) / 64 * 64;
}

void sample(Exec& exec, Tensor logits, std::span<const SampleRow> rows, std::span<Sampled> results, Tensor next) {
  CHECK(logits.rank == 2 && logits.dtype == Dtype::f32 && logits.dims[1] > 0);
  CHECK(static_cast<size_t>(logits.dims[0]) == rows.size() && rows.size() == results.size());
  CHECK(!next || (next.rank == 1 && next.dtype == Dtype::i32));
  for (const SampleRow& row : rows) {
    CHECK(row.next < (next ? next.dims[0] : 0));
    CHECK(!row.processed || (row.logprobs < 0 && row.forced < 0));
    CHECK(row.logprobs <= max_top_logprobs && row.forced < logits.dims[1]);
    CHECK(row.allowed.empty() || row.allowed.size() == (static_cast<size_t>(logits.dims[1]) + 31) / 32);
  }
  const Arena::Scope scope(exec.arena);
  std::byte* const scratch = exec.arena.take(sample_scratch_bytes(exec.queue, logits.dims[0], logits.dims[1]));
  tell_bytes(exec, logits);
  kernels::sample(exec, logits, rows, results, next, scratch);
}

}  // namespace quern
