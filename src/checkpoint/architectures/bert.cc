// BERT (RoBERTa too, whose tables are cut to BERT's form), Nomic's and ModernBERT.
#include "checkpoint/gguf_translation.h"

namespace quern {
namespace {

constexpr GgufName bert_names[] = {
    {"token_embd_norm", "model.embed_norm"},
    {"token_types", "model.embed_types"},
    {"attn_output_norm", "post_attention_layernorm"},
    {"layer_output_norm", "post_feedforward_layernorm"},
    {"cls", "pooler.dense"},
    {"cls.output", "classifier"},
};

constexpr GgufName modern_names[] = {
    {"token_embd_norm", "model.embed_norm"},
    {"ffn_up", "mlp.gate_up_proj"},
};

/// Rows of a table; 0 when there is none.
int64_t rows_of(const GgufTranslation& translation, std::string_view name) {
  const StoredTensor* table = translation.gguf().find_tensor(name);
  return table == nullptr ? 0 : table->shape.front();
}

/// Rerankers: a dense layer over the first token, then scores. Files of BERT's own lack that layer.
Status classifier(GgufTranslation& translation) {
  const int64_t labels = rows_of(translation, "cls.output.weight");
  if (labels == 0) return {};
  if (!translation.has_tensor("cls.weight")) {
    return Error{translation.gguf().path() +
                 ": has scores (cls.output.weight) without the layer before them (cls.weight); " +
                 "use the safetensors version"};
  }
  translation.config().set("architectures", Json::Array{"BertForSequenceClassification"}).set("num_labels", labels);
  return {};
}

Status bert(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.dense_ffn());
  Json& config = translation.config();
  config.set("type_vocab_size", rows_of(translation, "token_types.weight"));
  if (const int64_t rows = rows_of(translation, "position_embd.weight")) config.set("max_position_embeddings", rows);
  return classifier(translation);
}

Status nomic_bert(GgufTranslation& translation) {
  TRY(translation.common());
  translation.config().set("type_vocab_size", rows_of(translation, "token_types.weight"));
  return translation.copy_number("rope.freq_base", "rope_theta");
}

Status modern_bert(GgufTranslation& translation) {
  TRY(translation.shape());
  TRY(translation.heads());
  TRY(translation.vocabulary());
  TRY(translation.dense_ffn());
  TRY(translation.copy_number("rope.freq_base", "global_rope_theta"));
  TRY(translation.copy_number("rope.freq_base_swa", "local_rope_theta"));
  ASSIGN_OR_RETURN(const auto window, translation.size("attention.sliding_window", int64_t{1} << 27));
  if (window) translation.config().set("local_attention", *window);
  ASSIGN_OR_RETURN(const auto period, translation.size("attention.sliding_window_pattern", 1 << 10));
  if (period) translation.config().set("global_attn_every_n_layers", *period);
  return {};
}

const GgufEntry first{
    {.name = "bert", .model_type = "bert", .class_name = "BertModel", .translate = bert, .names = bert_names}};
const GgufEntry nomic{{.name = "nomic-bert",
                       .model_type = "nomic_bert",
                       .class_name = "NomicBertModel",
                       .translate = nomic_bert,
                       .names = bert_names}};
const GgufEntry modern{{.name = "modern-bert",
                        .model_type = "modernbert",
                        .class_name = "ModernBertModel",
                        .translate = modern_bert,
                        .names = modern_names}};

}  // namespace
}  // namespace quern
