#include "model/decoder.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "ops/elementwise.h"
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
  const Tensor x = embed_tokens(step);
  step.hidden = x;
  if (layer_inputs_) step.layer_inputs = layer_inputs_->of(step, x);
  for (const Part& part : parts_) run(step, part, x);
  return x;
}

Tensor Decoder::outputs(Step& step, Tensor hidden) const {
  if (step.shape.outputs == 0) return {};
  return norm_.of(step.exec, select_rows(step.exec, hidden, step.inputs.outputs));
}

Tensor Decoder::logits_of_hidden(Step& step, Tensor hidden) const { return logits(step, norm_.of(step.exec, hidden)); }

Tensor Decoder::embed_tokens(const Step& step) const {
  Exec& exec = step.exec;
  const Tensor x = embed(exec, embedding_, step.inputs.tokens, embedding_scale_);
  const Arena::Scope scope(exec.arena);
  if (positions_.rows > 0) add(exec, x, embed(exec, positions_, step.inputs.segments.positions, 1.0F));
  if (types_.rows > 0) add(exec, x, embed(exec, types_, step.inputs.types, 1.0F));
  if (embedding_norm_) embedding_norm_.apply(exec, x);
  return x;
}

void Decoder::run(Step& step, const Part& part, Tensor x) const {
  add_part(step, part, x);
  if (part.scalar) scale_by(step.exec, x, part.scalar);
}

void Decoder::add_part(Step& step, const Part& part, Tensor x) const {
  const Arena::Scope scope(step.exec.arena);
  const Tensor normed = part.norm.of(step.exec, x);
  if (part.norm_of_sum || (!part.post_norm && part.factor == 1.0F)) {
    for (const auto& block : part.blocks) block->forward(step, normed, x, true);
    if (part.norm_of_sum) part.post_norm.apply(step.exec, x);
    return;
  }
  const Tensor y = step.exec.arena.tensor(Dtype::f32, step.shape.tokens, dim_);
  for (const auto& block : part.blocks) block->forward(step, normed, y, block != part.blocks.front());
  if (part.post_norm) part.post_norm.apply(step.exec, y);
  add(step.exec, x, y, part.factor);
}

Tensor Decoder::logits(Step& step, Tensor hidden) const {
  CHECK(output_.count > 0);
  const Tensor scores = step.exec.arena.tensor(Dtype::f32, hidden.dims[0], output_.rows);
  linear_into(step.exec, scores, hidden, output_, false);
  if (logit_scale_ != 1.0F) scale(step.exec, scores, logit_scale_);
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
  decoder.embedding_scale_ = spec.embedding_scale;
  decoder.logit_scale_ = spec.logit_scale;
  decoder.logit_softcap_ = spec.logit_softcap;
  decoder.layout_ = kv_layout(spec, 2);
  TRY(decoder.load_tables(spec, weights));

  std::vector<RopeSpec> ropes;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    int index = 0;
    if (const RopeSpec* rope = rope_of(spec.layers[i].mixer)) {
      const auto known = std::find(ropes.begin(), ropes.end(), *rope);
      index = static_cast<int>(known - ropes.begin());
      if (known == ropes.end() && rope->dims > 0) ropes.push_back(*rope);
    }
    TRY(decoder.load_layer(spec, static_cast<int>(i), index, weights));
  }
  if (ropes.size() > max_ropes) {
    return Error{fmt::format("the model has {} different ropes; at most {} are supported", ropes.size(), max_ropes)};
  }
  for (const RopeSpec& rope : ropes) {
    decoder.ropes_.push_back({weights.constants(rope.inverse_frequencies), rope.factor});
  }

  ASSIGN_OR_RETURN(decoder.norm_, Norm::load(spec.final_norm, spec.dim, spec.norm, weights));
  return decoder;
}

Status Decoder::load_tables(const DecoderSpec& spec, Weights& weights) {
  ASSIGN_OR_RETURN(embedding_, weights.weight("model.embed_tokens.weight", spec.vocab, spec.dim));
  if (spec.learned_positions > 0) {
    const RowRange rows{spec.first_position + spec.learned_positions, spec.first_position, spec.learned_positions};
    ASSIGN_OR_RETURN(positions_, weights.some_rows("model.embed_positions.weight", rows, spec.dim));
  }
  if (spec.text_types > 0) {
    ASSIGN_OR_RETURN(types_, weights.weight("model.embed_types.weight", spec.text_types, spec.dim));
  }
  if (spec.embedding_norm) {
    ASSIGN_OR_RETURN(embedding_norm_, Norm::load("model.embed_norm", spec.dim, spec.norm, weights));
  }
  if (spec.layer_input) {
    ASSIGN_OR_RETURN(layer_inputs_, LayerInputs::load(spec, weights));
  }
  if (spec.pooler) return {};  // it has no output matrix
  if (!spec.tied) {
    ASSIGN_OR_RETURN(output_, weights.matrix({{"lm_head", spec.vocab}}, spec.dim, spec.output_bias));
    return {};
  }
  output_.parts[0] = embedding_;
  output_.count = 1;
  output_.rows = spec.vocab;
  output_.cols = spec.dim;
  return {};
}

Status Decoder::load_layer(const DecoderSpec& spec, int index, int rope, Weights& weights) {
  const LayerSpec& layer = spec.layers[static_cast<size_t>(index)];
  const BlockPlace place{fmt::format("model.layers.{}.", index), index, spec.dim, rope, spec.norm};
  TRY(load_parts(layer, place, weights));
  if (spec.layer_input) {
    TRY(load_layer_input(*spec.layer_input, place, weights));
  }
  if (!layer.scaled) return {};
  const std::string name = place.prefix + "layer_scalar";
  ASSIGN_OR_RETURN(parts_.back().scalar, weights.vector(weights.has(name) ? name : name + ".weight", 1, 0.0F));
  return {};
}

Status Decoder::load_parts(const LayerSpec& layer, const BlockPlace& place, Weights& weights) {
  const auto block = [&](const auto& part) { return make_block(part, place, weights); };
  const LayerNorms& norms = layer.norms;
  ASSIGN_OR_RETURN(auto mixer, std::visit(block, layer.mixer));
  ASSIGN_OR_RETURN(auto ffn, std::visit(block, layer.ffn));
  ASSIGN_OR_RETURN(Part first, load_part(place, norms.before_mixer, norms.after_mixer, weights));
  first.factor = layer.residual_factor;
  first.norm_of_sum = norms.of_sums;
  first.blocks.push_back(std::move(mixer));
  if (layer.parallel) {
    first.blocks.push_back(std::move(ffn));
    parts_.push_back(std::move(first));
    return {};
  }
  ASSIGN_OR_RETURN(Part second, load_part(place, norms.before_ffn, norms.after_ffn, weights));
  second.factor = layer.residual_factor;
  second.norm_of_sum = norms.of_sums;
  second.blocks.push_back(std::move(ffn));
  parts_.push_back(std::move(first));
  parts_.push_back(std::move(second));
  return {};
}

Status Decoder::load_layer_input(const LayerInputSpec& spec, const BlockPlace& place, Weights& weights) {
  ASSIGN_OR_RETURN(auto block, make_block(spec, place, weights));
  ASSIGN_OR_RETURN(Part part, load_part(place, "", "post_per_layer_input_norm", weights));
  part.blocks.push_back(std::move(block));
  parts_.push_back(std::move(part));
  return {};
}

Result<Decoder::Part> Decoder::load_part(const BlockPlace& place, const std::string& norm, const std::string& post_norm,
                                         Weights& weights) {
  const auto full = [&](const std::string& name) { return name.empty() ? name : place.prefix + name; };
  Part part;
  ASSIGN_OR_RETURN(part.norm, Norm::load(full(norm), place.dim, place.norm, weights));
  ASSIGN_OR_RETURN(part.post_norm, Norm::load(full(post_norm), place.dim, place.norm, weights));
  return part;
}

}  // namespace quern
