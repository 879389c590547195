// sample: the next token of every row from its logits, and log-probabilities.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "ops/exec.h"
#include "ops/kernel.h"
#include "ops/token_counts.h"
#include "tensor/tensor.h"

namespace quern {

inline constexpr int max_top_logprobs = 20;

/// What is done to one row's logits, in this order: `allowed`, `banned`, `biases`, penalties; then the best token if
/// temperature is 0; else temperature, min_p, top_k, typical_p, top_p, and a draw from what is left, all else being
/// minus infinity. Where equal logits compete, the lower token goes first. The draw depends on (seed, position) and
/// the logits alone.
struct SampleRow {
  float temperature = 1.0F;  // below 1e-5: the best token
  float min_p = 0.0F;        // keeps tokens at least this probable relative to the best one
  int32_t top_k = 0;         // keeps the k best; 0 or less: all
  float top_p = 1.0F;        // keeps the fewest best tokens whose share of what those before left is at least top_p
  float repetition_penalty = 1.0F;  // tokens of `counts`: logits above 0 are divided by it, others multiplied
  float frequency_penalty = 0.0F;   // taken off per time that a token was generated
  float presence_penalty = 0.0F;    // taken off when it was generated at all
  float typical_p = 1.0F;  // of those: the fewest of about mean surprise whose share is at least typical_p, and ties
  uint64_t seed = 0;
  int64_t position = 0;                     // of the token to be drawn, in its sequence
  int32_t forced = -1;                      // not negative: nothing is drawn, the result is this token and its logprobs
  int32_t logprobs = -1;                    // -1: none; n: of the chosen token and the n best, n <= max_top_logprobs
  bool processed = false;                   // the logits become those that were drawn from; without `logprobs`
  int32_t next = -1;                        // not negative: the token also becomes this entry of `next`
  std::span<const TokenCount> counts = {};  // empty without penalties
  std::span<const std::pair<int32_t, float>> biases = {};  // added
  std::span<const int32_t> banned = {};                    // never drawn: end tokens before min_tokens
  std::span<const uint32_t> allowed = {};                  // bit i of word i / 32: token i may be drawn; empty: all
};

struct TopLogprob {
  int32_t token = -1;
  float logprob = 0.0F;
};

enum class SampleStatus : uint8_t {
  ok,
  not_finite,       // the row has a NaN or an infinity
  nothing_allowed,  // masks and bans left no token
};

/// Logprobs are log-softmax of the logits as they came. `token` is -1 when status is not ok.
struct Sampled {
  int32_t token = -1;
  SampleStatus status = SampleStatus::ok;
  float logprob = 0.0F;
  int32_t rank = 0;  // of a forced token with logprobs: 1 and the number of larger logits
  int32_t top_count = 0;
  std::array<TopLogprob, max_top_logprobs> top;  // best first
};

/// results[i] for logits[i] under rows[i]; the tokens of rows that ask for it also become entries of `next`, which
/// take_next_tokens() of a later step reads. Logits of rows with `processed` change, others stay as they are.
/// logits: [rows, vocab] f32   next: [any] i32, or none
/// Queued as all operations are. `rows`, what they point to, and `results` are memory that host and device address
/// (Device::allocate_host) and that the host leaves alone until the queue has come this far.
void sample(Exec& exec, Tensor logits, std::span<const SampleRow> rows, std::span<Sampled> results, Tensor next = {});
/// What it takes from the arena meanwhile.
int64_t sample_scratch_bytes(Queue queue, int32_t rows, int32_t vocab);

namespace kernels {
inline constinit Kernel<void(Tensor logits, std::span<const SampleRow> rows, std::span<Sampled> results, Tensor next,
                             std::byte* scratch)>
    sample{"sample"};
/// How much scratch that takes.
inline constinit Kernel<void(int32_t rows, int32_t vocab, int64_t& bytes)> sample_scratch{"sample_scratch"};
}  // namespace kernels

}  // namespace quern
