#include "model/decoder.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "ops/elementwise.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/select.h"

namespace quern {
namespace {

/// Stands for memory where nothing is computed: addresses are counted from here and never touched.
std::byte* const nowhere = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);

Tensor integers(int count) { return Tensor::dense(nowhere, Dtype::i32, count); }

}  // namespace

Tensor Decoder::run(Step& step) const {
  Exec& exec = step.exec;
  for (size_t i = 0; i < ropes_.size(); ++i) {
    step.ropes[i] = rope_table(exec, step.inputs.segments.positions, ropes_[i].inverse_frequencies, ropes_[i].factor);
  }
  const Tensor x = embed(exec, embedding_, step.inputs.tokens, embedding_scale_);
  for (const Part& part : parts_) run(step, part, x);
  return x;
}

Tensor Decoder::outputs(Step& step, Tensor hidden) const {
  if (step.shape.outputs == 0) return {};
  return rms_norm(step.exec, select_rows(step.exec, hidden, step.inputs.outputs), norm_, norm_eps_);
}

Tensor Decoder::logits_of_hidden(Step& step, Tensor hidden) const {
  return logits(step, rms_norm(step.exec, hidden, norm_, norm_eps_));
}

void Decoder::run(Step& step, const Part& part, Tensor x) const {
  const Arena::Scope scope(step.exec.arena);
  const Tensor normed = rms_norm(step.exec, x, part.norm, norm_eps_);
  if (!part.post_norm) return part.block->forward(step, normed, x, true);
  const Tensor y = step.exec.arena.tensor(Dtype::f32, step.shape.tokens, dim_);
  part.block->forward(step, normed, y, false);
  rms_norm_into(step.exec, y, y, part.post_norm, norm_eps_);
  add(step.exec, x, y);
}

Tensor Decoder::logits(Step& step, Tensor hidden) const {
  CHECK(output_.count > 0);
  const Tensor scores = step.exec.arena.tensor(Dtype::f32, hidden.dims[0], output_.rows);
  linear_into(step.exec, scores, hidden, output_, false);
  if (logit_softcap_ > 0) softcap(step.exec, scores, logit_softcap_);
  return scores;
}

int64_t Decoder::activation_bytes(Queue queue, Dtype activations, const StepShape& most, int max_positions) const {
  Arena none(nowhere, 0);
  Exec exec{queue, none};
  exec.activations = activations;
  KvCache kv;
  kv.pool = kv.states = nowhere;
  kv.layout = layout_;
  const int pages = (max_positions + layout_.page_tokens - 1) / layout_.page_tokens;
  kv.tables.assign(layout_.groups.size(), Tensor::dense(nowhere, Dtype::i32, most.segments, pages));
  // Operations may choose other ways for few tokens, so that more is not always more: small steps are measured too.
  int64_t bytes = measure(exec, most, kv);
  for (int tokens = 1; tokens < most.tokens; tokens *= 2) {
    const StepShape shape{tokens, std::min(tokens, most.segments), std::min(tokens, most.outputs)};
    bytes = std::max(bytes, measure(exec, shape, kv));
  }
  return bytes;
}

int64_t Decoder::measure(const Exec& like, const StepShape& shape, const KvCache& kv) const {
  Arena arena(nowhere, std::numeric_limits<int64_t>::max());
  Exec exec{like.queue, arena};
  exec.activations = like.activations;
  exec.measure = true;
  const Segments segments{integers(shape.segments + 1), integers(shape.segments), integers(shape.tokens)};
  Step step{exec, shape, {integers(shape.tokens), segments, integers(shape.outputs)}, kv};
  const Tensor hidden = forward(step);
  if (shape.outputs > 0 && output_.count > 0) logits(step, hidden);
  return arena.peak();
}

Result<Decoder> Decoder::build(const DecoderSpec& spec, Weights& weights) {
  Decoder decoder;
  decoder.dim_ = spec.dim;
  decoder.norm_eps_ = spec.norm_eps;
  decoder.embedding_scale_ = spec.embedding_scale;
  decoder.logit_softcap_ = spec.logit_softcap;
  decoder.layout_ = kv_layout(spec, 2);
  const std::string embedding = "model.embed_tokens.weight";
  ASSIGN_OR_RETURN(decoder.embedding_, weights.weight(embedding, spec.vocab, spec.dim));

  std::vector<RopeSpec> ropes;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    int index = 0;
    if (const RopeSpec* rope = rope_of(spec.layers[i].mixer)) {
      const auto known = std::find(ropes.begin(), ropes.end(), *rope);
      index = static_cast<int>(known - ropes.begin());
      if (known == ropes.end()) ropes.push_back(*rope);
    }
    TRY(decoder.load_layer(spec, static_cast<int>(i), index, weights));
  }
  if (ropes.size() > max_ropes) {
    return Error{fmt::format("the model has {} different ropes; at most {} are supported", ropes.size(), max_ropes)};
  }
  for (const RopeSpec& rope : ropes) {
    decoder.ropes_.push_back({weights.constants(rope.inverse_frequencies), rope.factor});
  }

  ASSIGN_OR_RETURN(decoder.norm_, weights.vector("model.norm.weight", spec.dim, spec.norm_offset));
  if (spec.pooler) return decoder;
  if (spec.tied) {
    decoder.output_.parts[0] = decoder.embedding_;
    decoder.output_.count = 1;
    decoder.output_.rows = spec.vocab;
    decoder.output_.cols = spec.dim;
  } else {
    ASSIGN_OR_RETURN(decoder.output_, weights.matrix({{"lm_head", spec.vocab}}, spec.dim, false));
  }
  return decoder;
}

Status Decoder::load_layer(const DecoderSpec& spec, int index, int rope, Weights& weights) {
  const LayerSpec& layer = spec.layers[static_cast<size_t>(index)];
  const BlockPlace place{
      fmt::format("model.layers.{}.", index), index, spec.dim, rope, spec.norm_eps, spec.norm_offset};
  const auto block = [&](const auto& part) { return make_block(part, place, weights); };
  // Llama's files call the norm before the ffn "post_attention_layernorm"; with post norms that name means what it
  // says.
  const bool post = layer.post_norms;
  ASSIGN_OR_RETURN(Part mixer, load_part(spec, place.prefix + "input_layernorm.weight",
                                         post ? place.prefix + "post_attention_layernorm.weight" : "",
                                         std::visit(block, layer.mixer), weights));
  parts_.push_back(std::move(mixer));
  ASSIGN_OR_RETURN(
      Part ffn,
      load_part(spec, place.prefix + (post ? "pre_feedforward_layernorm" : "post_attention_layernorm") + ".weight",
                post ? place.prefix + "post_feedforward_layernorm.weight" : "", std::visit(block, layer.ffn), weights));
  parts_.push_back(std::move(ffn));
  return {};
}

Result<Decoder::Part> Decoder::load_part(const DecoderSpec& spec, const std::string& norm, const std::string& post_norm,
                                         Result<std::unique_ptr<Block>> block, Weights& weights) {
  Part part;
  ASSIGN_OR_RETURN(part.block, std::move(block));
  ASSIGN_OR_RETURN(part.norm, weights.vector(norm, spec.dim, spec.norm_offset));
  if (!post_norm.empty()) {
    ASSIGN_OR_RETURN(part.post_norm, weights.vector(post_norm, spec.dim, spec.norm_offset));
  }
  return part;
}

}  // namespace quern
