// GGUF files as checkpoints: configuration, names, vocabulary; and the impossible values that are refused.
#include "checkpoint/gguf_checkpoint.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "checkpoint/gguf_architecture.h"
#include "checkpoint/gguf_types.h"
#include "checkpoint/testing.h"

namespace quern {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Folder;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::raw;

/// One key of the small model below, replaced or (without a value) left out.
struct Change {
  std::string key;
  std::optional<std::string> typed_value;  // type and bytes
};
Change without(std::string key) { return {std::move(key), {}}; }
Change with(std::string key, uint32_t value) { return {std::move(key), raw(uint32_t{4}) + raw(value)}; }
Change with_float(std::string key, float value) { return {std::move(key), raw(uint32_t{6}) + raw(value)}; }
Change with_text(std::string key, std::string_view value) {
  return {std::move(key), raw(uint32_t{8}) + testing::gguf_string(value)};
}
template <typename T>
Change with_list(std::string key, uint32_t type, const std::vector<T>& values) {
  std::string bytes = raw(uint32_t{9}) + raw(type) + raw(uint64_t{values.size()});
  for (const T value : values) bytes += raw(value);
  return {std::move(key), bytes};
}
Change with_texts(std::string key, const std::vector<std::string>& values) {
  std::string bytes = raw(uint32_t{9}) + raw(uint32_t{8}) + raw(uint64_t{values.size()});
  for (const std::string& value : values) bytes += testing::gguf_string(value);
  return {std::move(key), bytes};
}

/// A model of two layers, four heads of 8 and four tokens.
GgufWriter small_model(const std::string& arch, const std::vector<Change>& changes) {
  std::vector<Change> keys = {with_text("general.architecture", arch),
                              with(arch + ".block_count", 2),
                              with(arch + ".embedding_length", 32),
                              with(arch + ".context_length", 128),
                              with(arch + ".feed_forward_length", 64),
                              with(arch + ".attention.head_count", 4),
                              with(arch + ".attention.head_count_kv", 2),
                              with_float(arch + ".attention.layer_norm_rms_epsilon", 1e-5F),
                              with_text("tokenizer.ggml.model", "gpt2"),
                              with_text("tokenizer.ggml.pre", "smollm"),
                              with_texts("tokenizer.ggml.tokens", {"<s>", "a", "b", "ab"}),
                              with_list<int32_t>("tokenizer.ggml.token_type", 5, {3, 1, 1, 1}),
                              with_texts("tokenizer.ggml.merges", {"a b"}),
                              with("tokenizer.ggml.bos_token_id", 0),
                              with("tokenizer.ggml.eos_token_id", 1)};
  for (const Change& change : changes) {
    std::erase_if(keys, [&](const Change& key) { return key.key == change.key; });
    if (change.typed_value) keys.push_back(change);
  }
  GgufWriter writer;
  for (const Change& key : keys) writer.raw_pair(testing::gguf_string(key.key) + *key.typed_value);
  writer.zeros("token_embd.weight", {32, 4})
      .zeros("blk.0.attn_q.weight", {32, 32})
      .zeros("blk.0.attn_k.weight", {32, 16});
  writer.zeros("blk.0.ffn_norm.weight", {32});
  return writer;
}

Result<Json> config_of(const GgufWriter& writer) {
  const std::string bytes = writer.bytes();
  ASSIGN_OR_RETURN(const Gguf gguf, Gguf::parse(testing::as_bytes(bytes), "m.gguf"));
  return gguf_config(gguf);
}
Json config(const std::string& arch, const std::vector<Change>& changes) {
  return config_of(small_model(arch, changes)).value();
}
std::string refusal(const std::string& arch, const std::vector<Change>& changes) {
  auto result = config_of(small_model(arch, changes));
  return result.ok() ? "accepted" : result.error().message;
}

TEST(GgufConfig, SpeaksTheLanguageOfConfigJson) {
  const Json json = config("llama", {});

  EXPECT_EQ(json.find("architectures")->items().front(), Json("LlamaForCausalLM"));
  EXPECT_EQ(json.integer("num_hidden_layers"), 2);
  EXPECT_EQ(json.integer("hidden_size"), 32);
  EXPECT_EQ(json.integer("intermediate_size"), 64);
  EXPECT_EQ(json.integer("num_attention_heads"), 4);
  EXPECT_EQ(json.integer("num_key_value_heads"), 2);
  EXPECT_EQ(json.integer("head_dim"), 8);
  EXPECT_EQ(json.integer("vocab_size"), 4);
  EXPECT_EQ(json.integer("max_position_embeddings"), 128);
  EXPECT_EQ(json.number("rope_theta"), 10000.0);
  EXPECT_EQ(json.number("rms_norm_eps"), double{1e-5F});
  EXPECT_EQ(json.boolean("tie_word_embeddings"), true);
  EXPECT_EQ(json.boolean("attention_bias"), false);
  EXPECT_FALSE(json.has("rope_scaling"));
}

TEST(GgufConfig, TensorsTellBiasAndTying) {
  GgufWriter writer = small_model("qwen2", {});
  writer.zeros("output.weight", {32, 4}).zeros("blk.0.attn_q.bias", {32});

  const Json json = config_of(writer).value();

  EXPECT_EQ(json.boolean("tie_word_embeddings"), false);
  EXPECT_EQ(json.boolean("attention_bias"), true);
}

TEST(GgufConfig, RopeScaling) {
  EXPECT_EQ(config("llama", {with_float("llama.rope.scaling.factor", 4.0F)}).find("rope_scaling")->dump(),
            R"({"rope_type":"linear","factor":4.0})");
  EXPECT_EQ(config("llama", {with_float("llama.rope.scale_linear", 2.0F)}).find("rope_scaling")->dump(),
            R"({"rope_type":"linear","factor":2.0})");
  const Json yarn =
      config("qwen2", {with_text("qwen2.rope.scaling.type", "yarn"), with_float("qwen2.rope.scaling.factor", 4.0F),
                       with("qwen2.rope.scaling.original_context_length", 32)});
  EXPECT_EQ(yarn.find("rope_scaling")->dump(),
            R"({"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32})");
  EXPECT_FALSE(config("llama", {with_text("llama.rope.scaling.type", "none")}).has("rope_scaling"));
  EXPECT_THAT(refusal("llama", {with_text("llama.rope.scaling.type", "longrope")}), HasSubstr("longrope"));
}

TEST(GgufConfig, RopeFactorsComeFromTheirTensor) {
  const std::string factors = raw(1.0F) + raw(1.5F) + raw(4.0F) + raw(8.0F);
  const Json json = config_of(small_model("llama", {}).tensor("rope_freqs.weight", {4}, 0, factors)).value();
  EXPECT_EQ(json.find("rope_scaling")->dump(), R"({"rope_type":"factors","factors":[1.0,1.5,4.0,8.0]})");

  EXPECT_FALSE(config_of(small_model("llama", {}).zeros("rope_freqs.weight", {4})).ok());  // 0 divides nothing
  EXPECT_FALSE(config_of(small_model("llama", {}).zeros("rope_freqs.weight", {3})).ok());
}

TEST(GgufConfig, GemmaLayersSlideByNumberOrList) {
  const auto types = [](const std::vector<Change>& changes) {
    std::vector<Change> all = {with("gemma3.attention.sliding_window", 16)};
    all.insert(all.end(), changes.begin(), changes.end());
    return config("gemma3", all).find("layer_types")->dump();
  };
  EXPECT_EQ(types({}), R"(["sliding_attention","sliding_attention"])");
  EXPECT_EQ(types({with("gemma3.attention.sliding_window_pattern", 2)}), R"(["sliding_attention","full_attention"])");
  EXPECT_EQ(types({with_list<bool>("gemma3.attention.sliding_window_pattern", 7, {false, true})}),
            R"(["full_attention","sliding_attention"])");
  const Json json =
      config("gemma3", {with("gemma3.attention.key_length", 16), with("gemma3.attention.value_length", 16)});
  EXPECT_EQ(json.integer("query_pre_attn_scalar"), 16);
  EXPECT_EQ(json.number("rope_local_base_freq"), 10000.0);
}

TEST(GgufConfig, Gemma4SharesKeysAndWidensThoseLayers) {
  const auto changed = [](std::vector<Change> more) {
    std::vector<Change> all = {with("gemma4.attention.sliding_window", 16), with("gemma4.attention.key_length", 16),
                               with("gemma4.attention.shared_kv_layers", 1)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string sizes = "gemma4.feed_forward_length";
  const Json json = config("gemma4", changed({with_list<uint32_t>(sizes, 4, {64, 128})}));
  EXPECT_EQ(json.integer("num_kv_shared_layers"), 1);
  EXPECT_EQ(json.integer("intermediate_size"), 64);
  EXPECT_EQ(json.boolean("use_double_wide_mlp"), true);
  EXPECT_EQ(config("gemma4", changed({})).boolean("use_double_wide_mlp"), false);

  EXPECT_THAT(refusal("gemma4", changed({with_list<uint32_t>(sizes, 4, {64, 96})})), HasSubstr("not twice"));
  EXPECT_THAT(refusal("gemma4", changed({with_list<uint32_t>(sizes, 4, {64, 128, 128})})), HasSubstr("entry a layer"));
  EXPECT_THAT(refusal("gemma4", changed({with("gemma4.attention.shared_kv_layers", 0),
                                         with_list<uint32_t>(sizes, 4, {64, 128})})),
              HasSubstr("differs between layers"));
  EXPECT_THAT(refusal("gemma4", changed({with("gemma4.attention.shared_kv_layers", 2)})),
              HasSubstr("is 2 of 2 layers"));
  EXPECT_THAT(refusal("gemma4", changed({with("gemma4.embedding_length_per_layer_input", 8)})),
              HasSubstr("no matrix per_layer_token_embd.weight"));
}

TEST(GgufConfig, Experts) {
  const std::vector<Change> experts = {with("qwen3moe.expert_count", 8), with("qwen3moe.expert_used_count", 2),
                                       with("qwen3moe.expert_feed_forward_length", 48),
                                       without("qwen3moe.feed_forward_length")};
  const Json json = config("qwen3moe", experts);
  EXPECT_EQ(json.integer("num_experts"), 8);
  EXPECT_EQ(json.integer("num_experts_per_tok"), 2);
  EXPECT_EQ(json.integer("moe_intermediate_size"), 48);
  EXPECT_EQ(json.boolean("norm_topk_prob"), true);

  std::vector<Change> too_many = experts;
  too_many[1] = with("qwen3moe.expert_used_count", 9);
  EXPECT_THAT(refusal("qwen3moe", too_many), HasSubstr("expert_used_count"));
  EXPECT_THAT(refusal("llama", {with("llama.expert_count", 8)}), HasSubstr("expert_used_count\" is missing"));

  std::vector<Change> shared = {with("granitemoe.expert_count", 8), with("granitemoe.expert_used_count", 2)};
  EXPECT_FALSE(config("granitemoe", shared).has("shared_intermediate_size"));
  shared.push_back(with("granitemoe.expert_shared_feed_forward_length", 48));
  EXPECT_EQ(config("granitemoe", shared).integer("shared_intermediate_size"), 48);
}

TEST(GgufConfig, PartOfAHeadMayRotate) {
  EXPECT_EQ(config("glm4", {with("glm4.rope.dimension_count", 4)}).number("partial_rotary_factor"), 0.5);
  EXPECT_FALSE(config("glm4", {with("glm4.rope.dimension_count", 8)}).has("partial_rotary_factor"));
  EXPECT_THAT(refusal("glm4", {with("glm4.rope.dimension_count", 16)}), HasSubstr("but heads have 8"));
  EXPECT_THAT(refusal("glm4", {with("glm4.rope.dimension_count", 5)}), HasSubstr("but heads have 8"));
}

TEST(GgufConfig, NormsThatTakeTheMeanOffHaveAnEpsilonOfTheirOwn) {
  const Json json = config("command-r", {without("command-r.attention.layer_norm_rms_epsilon"),
                                         with_float("command-r.attention.layer_norm_epsilon", 1e-3F),
                                         with_float("command-r.logit_scale", 0.25F)});

  EXPECT_EQ(json.number("layer_norm_eps"), double{1e-3F});
  EXPECT_EQ(json.number("logit_scale"), 0.25);
  EXPECT_FALSE(json.has("rms_norm_eps"));
}

TEST(GgufConfig, Phi3NeedsBothListsOfFactors) {
  const std::string factors = raw(1.0F) + raw(1.5F) + raw(4.0F) + raw(8.0F);
  const std::vector<Change> keys = {with("phi3.rope.scaling.original_context_length", 32),
                                    with("phi3.attention.sliding_window", 0),
                                    with_float("phi3.rope.scaling.attn_factor", 1.25F)};
  GgufWriter writer = small_model("phi3", keys);
  writer.tensor("rope_factors_long.weight", {4}, 0, factors);
  EXPECT_FALSE(config_of(writer).ok());
  writer.tensor("rope_factors_short.weight", {4}, 0, factors);

  const Json json = config_of(writer).value();

  EXPECT_EQ(json.find("rope_scaling")->dump(),
            R"({"rope_type":"longrope","long_factor":[1.0,1.5,4.0,8.0],"short_factor":[1.0,1.5,4.0,8.0],)"
            R"("original_max_position_embeddings":32,"attention_factor":1.25})");
  EXPECT_EQ(json.integer("sliding_window"), 0);
}

TEST(GgufConfig, Olmo2WithAWindowIsOlmo3) {
  const auto name = [](const std::vector<Change>& changes) {
    return config("olmo2", changes).find("architectures")->items().front().as_string();
  };

  EXPECT_EQ(name({}), "Olmo2ForCausalLM");
  EXPECT_EQ(name({with("olmo2.attention.sliding_window", 16)}), "Olmo3ForCausalLM");
}

TEST(GgufConfig, UnknownArchitecturesAreRefusedWithTheKnownOnes) {
  EXPECT_THAT(refusal("mamba", {}), AllOf(HasSubstr(R"("mamba" is not supported (known: )"), HasSubstr(", llama, "),
                                          HasSubstr(", qwen3moe")));
  EXPECT_THAT(refusal("llama", {without("general.architecture")}), HasSubstr("is missing"));
  EXPECT_THAT(refusal("llama", {with("general.architecture", 1)}), HasSubstr("expected a string"));
  EXPECT_LT(refusal("llama", {with_text("general.architecture", std::string(10 << 20, 'x'))}).size(), 1000U);
}

TEST(GgufConfig, OtherKindsOfFilesAreRefused) {
  EXPECT_THAT(refusal("llama", {with_text("general.type", "adapter")}), HasSubstr("adapter"));
}

// S2
TEST(GgufConfig, ImpossibleSizesNameTheirKey) {
  const std::pair<const char*, std::vector<uint32_t>> cases[] = {
      {"llama.attention.head_count", {0, 3, 1 << 30}},
      {"llama.attention.head_count_kv", {0, 3, 8}},
      {"llama.block_count", {0, 1'000'000'000}},
      {"llama.context_length", {0}},
      {"llama.embedding_length", {0, 33}},
      {"llama.rope.dimension_count", {0, 7, 4}},
      {"llama.feed_forward_length", {0}},
      {"llama.attention.key_length", {0, 7}},
      {"llama.attention.value_length", {4}},
  };
  for (const auto& [key, values] : cases) {
    for (const uint32_t value : values)
      EXPECT_THAT(refusal("llama", {with(key, value)}), HasSubstr("m.gguf: ")) << key << value;
    EXPECT_THAT(refusal("llama", {with_text(key, "7")}), HasSubstr(key));
  }
  for (const char* key :
       {"llama.block_count", "llama.attention.head_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.layer_norm_rms_epsilon"}) {
    EXPECT_THAT(refusal("llama", {without(key)}), HasSubstr(key));
  }
  EXPECT_NE(refusal("llama", {with_float("llama.attention.layer_norm_rms_epsilon", 0.0F)}), "accepted");
  EXPECT_NE(refusal("llama", {with_float("llama.rope.freq_base", -1.0F)}), "accepted");
  EXPECT_NE(refusal("llama", {with_float("llama.rope.freq_base", std::numeric_limits<float>::infinity())}), "accepted");
  EXPECT_THAT(refusal("llama", {with_list<uint32_t>("llama.feed_forward_length", 4, {64, 32})}), HasSubstr("differs"));
  EXPECT_EQ(refusal("llama", {with_list<uint32_t>("llama.feed_forward_length", 4, {64, 64})}), "accepted");
}

TEST(GgufNames, BecomeThoseOfHuggingFace) {
  const auto name_in = [](std::string_view gguf, std::string_view architecture) {
    return hugging_face_name(gguf, *find_gguf_architecture(architecture));
  };
  const auto name = [&](std::string_view gguf) { return name_in(gguf, "qwen3moe"); };
  EXPECT_EQ(name("token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(name("output.weight"), "lm_head.weight");
  EXPECT_EQ(name("output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(name("blk.12.attn_q.bias"), "model.layers.12.self_attn.q_proj.bias");
  EXPECT_EQ(name("blk.3.attn_output.weight"), "model.layers.3.self_attn.o_proj.weight");
  EXPECT_EQ(name("blk.3.attn_k_norm.weight"), "model.layers.3.self_attn.k_norm.weight");
  EXPECT_EQ(name("blk.3.ffn_norm.weight"), "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(name("blk.0.ffn_gate_exps.weight"), "model.layers.0.mlp.experts.gate_proj.weight");
  EXPECT_EQ(name("blk.0.ffn_gate_inp.weight"), "model.layers.0.mlp.gate.weight");
  EXPECT_EQ(name_in("blk.1.ffn_norm.weight", "gemma3"), "model.layers.1.pre_feedforward_layernorm.weight");
  EXPECT_EQ(name_in("blk.1.post_attention_norm.weight", "gemma3"), "model.layers.1.post_attention_layernorm.weight");
  EXPECT_EQ(name_in("blk.1.post_ffw_norm.weight", "gemma3"), "model.layers.1.post_feedforward_layernorm.weight");
  for (const char* odd : {"rope_freqs.weight", "blk", "blk.", "blk.1", "blk.1.x.weight", "", ".", "weight"}) {
    EXPECT_EQ(name(odd), odd);
  }
}

TEST(GgufCheckpoint, OpensWithTranslatedNamesAndRotaryPairs) {
  const Folder folder;
  const std::string path = folder.write("small.gguf", small_model("llama", {}).bytes());

  const auto checkpoint = Checkpoint::open(path).value();

  EXPECT_EQ(checkpoint->kind(), CheckpointKind::gguf);
  EXPECT_EQ(checkpoint->tensors().size(), 4U);
  EXPECT_EQ(checkpoint->find("model.layers.0.self_attn.q_proj.weight")->rope_heads, 4);
  EXPECT_EQ(checkpoint->find("model.layers.0.self_attn.k_proj.weight")->rope_heads, 2);
  EXPECT_EQ(checkpoint->find("model.embed_tokens.weight")->rope_heads, 0);
  EXPECT_EQ(checkpoint->find("token_embd.weight"), nullptr);
  EXPECT_EQ(checkpoint->generation_config().dump(), R"({"eos_token_id":1,"bos_token_id":0})");
}

TEST(GgufCheckpoint, OtherArchitecturesRotateHalves) {
  const Folder folder;
  const auto checkpoint = Checkpoint::open(folder.write("small.gguf", small_model("qwen2", {}).bytes())).value();
  EXPECT_EQ(checkpoint->find("model.layers.0.self_attn.q_proj.weight")->rope_heads, 0);
}

TEST(GgufCheckpoint, TwoTensorsOfOneMeaningAreRefused) {
  const Folder folder;
  GgufWriter writer = small_model("llama", {});
  writer.zeros("model.embed_tokens.weight", {32, 4});
  const auto checkpoint = Checkpoint::open(folder.write("small.gguf", writer.bytes()));
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_THAT(checkpoint.error().message, HasSubstr("two tensors mean"));
}

TEST(GgufCheckpoint, UnsupportedTypesMatterOnlyToWhoNeedsThem) {
  const Folder folder;
  GgufWriter writer = small_model("llama", {});
  writer.tensor("blk.0.ffn_up.weight", {32, 1}, 9, std::string(36, 'x'));
  writer.tensor("blk.0.ffn_down.weight", {32, 1}, 24, std::string(32, 'x'));
  const auto checkpoint = Checkpoint::open(folder.write("small.gguf", writer.bytes())).value();
  const int64_t shape[] = {1, 32};
  const auto refused = [&](const char* name) {
    const auto scheme = check_tensor(*checkpoint, *checkpoint->find(name), shape);
    return scheme.ok() ? std::string("accepted") : scheme.error().message;
  };

  EXPECT_THAT(refused("model.layers.0.mlp.up_proj.weight"), HasSubstr("has type Q8_1, which is for activations"));
  EXPECT_THAT(refused("model.layers.0.mlp.down_proj.weight"),
              HasSubstr("has type I8, which is not supported (known: BF16, F16, F32, F8_E4M3, IQ1_M, IQ1_S,"));
}

/// The number of a type in files, by its size and name.
uint32_t type_id(const testing::QuantCase& one) {
  for (uint32_t id = 0; id < 64; ++id) {
    const GgufTensorType* const type = find_gguf_type(id);
    if (type != nullptr && type->name == one.type) return id;
  }
  return 0;
}

TEST(GgufCheckpoint, EveryTypeIsReadFromAFile) {
  const Folder folder;
  for (const testing::QuantCase& one : testing::quant_cases(QUERN_SOURCE_DIR)) {
    GgufWriter writer = small_model("llama", {});
    const std::string_view stored(reinterpret_cast<const char*>(one.stored.data()), one.stored.size());
    const auto cols = static_cast<int64_t>(one.floats.size());
    writer.tensor("blk.0.ffn_up.weight", {static_cast<uint64_t>(cols), 1}, type_id(one), stored);
    const auto checkpoint = Checkpoint::open(folder.write("small.gguf", writer.bytes())).value();
    const StoredTensor* tensor = checkpoint->find("model.layers.0.mlp.up_proj.weight");
    const int64_t shape[] = {1, cols};

    const auto scheme = check_tensor(*checkpoint, *tensor, shape);

    ASSERT_TRUE(scheme.ok()) << scheme.error().message;
    EXPECT_EQ(scheme.value()->stored_type, one.type);
    ASSERT_EQ(tensor->bytes.size(), one.stored.size());
    EXPECT_EQ(std::memcmp(tensor->bytes.data(), one.stored.data(), one.stored.size()), 0) << one.type;
  }
}

TEST(GgufCheckpoint, CheckTensorComparesShapes) {
  const Folder folder;
  const auto checkpoint = Checkpoint::open(folder.write("small.gguf", small_model("llama", {}).bytes())).value();
  const StoredTensor* tensor = checkpoint->find("model.embed_tokens.weight");
  const int64_t right[] = {4, 32};
  const int64_t wrong[] = {4, 64};

  EXPECT_EQ(check_tensor(*checkpoint, *tensor, right).value()->format, FormatId::f32);
  EXPECT_THAT(check_tensor(*checkpoint, *tensor, wrong).error().message, HasSubstr("is [4, 32], expected [4, 64]"));
}

TEST(GgufGenerationConfig, EndTokensAndSamplingDefaults) {
  const GgufWriter writer =
      small_model("llama", {with("tokenizer.ggml.eot_token_id", 2), with_float("general.sampling.temp", 0.5F),
                            with("general.sampling.top_k", 20), with_float("general.sampling.top_p", 0.25F),
                            with_list("tokenizer.ggml.suppress_tokens", 5, std::vector<int32_t>{3})});
  const std::string bytes = writer.bytes();
  const Gguf gguf = Gguf::parse(testing::as_bytes(bytes), "m.gguf").value();

  EXPECT_EQ(
      gguf_generation_config(gguf, 4).value().dump(),
      R"({"eos_token_id":[1,2],"bos_token_id":0,"temperature":0.5,"top_p":0.25,"top_k":20,"suppress_tokens":[3]})");
  EXPECT_FALSE(gguf_generation_config(gguf, 2).ok());
}

Result<std::optional<StoredVocabulary>> vocabulary_of(const std::vector<Change>& changes) {
  const std::string bytes = small_model("llama", changes).bytes();
  ASSIGN_OR_RETURN(const Gguf gguf, Gguf::parse(testing::as_bytes(bytes), "m.gguf"));
  return gguf_vocabulary(gguf);
}

TEST(GgufVocabulary, IsReadWhole) {
  const StoredVocabulary vocabulary =
      *vocabulary_of({with_text("tokenizer.chat_template", "{{x}}"),
                      with_text("tokenizer.chat_template.tool_use", "{{y}}"),
                      with_text("tokenizer.chat_template.rag", "{{z}}"), with_text("tokenizer.chat_template.none", "")})
           .value();

  EXPECT_EQ(vocabulary.model, "gpt2");
  EXPECT_EQ(vocabulary.pre, "smollm");
  EXPECT_EQ(vocabulary.chat_template, "{{x}}");
  EXPECT_THAT(vocabulary.named_templates, ElementsAre(std::pair("rag", "{{z}}"), std::pair("tool_use", "{{y}}")));
  EXPECT_THAT(vocabulary.tokens, ElementsAre("<s>", "a", "b", "ab"));
  EXPECT_THAT(vocabulary.merges, ElementsAre("a b"));
  EXPECT_THAT(vocabulary.types, ElementsAre(3, 1, 1, 1));
  EXPECT_EQ(vocabulary.bos, 0);
  EXPECT_EQ(vocabulary.eos, 1);
  EXPECT_EQ(vocabulary.unknown, std::nullopt);
  EXPECT_EQ(vocabulary.add_bos, std::nullopt);
}

TEST(GgufVocabulary, TokensForFillingInHaveOlderNamesToo) {
  const auto ids_of = [](const std::vector<Change>& changes) {
    const StoredVocabulary vocabulary = *vocabulary_of(changes).value();
    return std::vector{vocabulary.fim_prefix.value_or(-1), vocabulary.fim_suffix.value_or(-1),
                       vocabulary.fim_middle.value_or(-1)};
  };
  const std::vector<Change> older = {with("tokenizer.ggml.prefix_token_id", 1),
                                     with("tokenizer.ggml.suffix_token_id", 2),
                                     with("tokenizer.ggml.middle_token_id", 3)};
  std::vector<Change> both = {with("tokenizer.ggml.fim_pre_token_id", 3), with("tokenizer.ggml.fim_suf_token_id", 1),
                              with("tokenizer.ggml.fim_mid_token_id", 2)};
  EXPECT_THAT(ids_of({}), ElementsAre(-1, -1, -1));
  EXPECT_THAT(ids_of(older), ElementsAre(1, 2, 3));
  both.insert(both.end(), older.begin(), older.end());
  EXPECT_THAT(ids_of(both), ElementsAre(3, 1, 2));
  EXPECT_FALSE(vocabulary_of({with("tokenizer.ggml.fim_mid_token_id", 4)}).ok());
}

TEST(GgufVocabulary, MayBeAbsent) {
  EXPECT_EQ(vocabulary_of({without("tokenizer.ggml.model")}).value().has_value(), false);
  EXPECT_EQ(vocabulary_of({with_text("tokenizer.ggml.model", "none")}).value().has_value(), false);
}

// S5
TEST(GgufVocabulary, TablesThatLieAreRefused) {
  const auto refused = [](const Change& change) {
    const auto vocabulary = vocabulary_of({change});
    return vocabulary.ok() ? std::string("accepted") : vocabulary.error().message;
  };
  EXPECT_THAT(refused(with_texts("tokenizer.ggml.tokens", {})), HasSubstr("empty"));
  EXPECT_THAT(refused(with_texts("tokenizer.ggml.tokens", {"a", "b", "c"})), HasSubstr("embedding has 4 rows"));
  EXPECT_THAT(refused(with_texts("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e"})),
              HasSubstr("embedding has 4 rows"));
  EXPECT_NE(refused(with_texts("tokenizer.ggml.tokens", {"a", "b", "c", std::string(65536, 'x')})), "accepted");
  EXPECT_NE(refused(with("tokenizer.ggml.tokens", 4)), "accepted");
  EXPECT_THAT(refused(with_list<uint8_t>("tokenizer.ggml.scores", 0, {1, 2, 3, 4})),
              HasSubstr("tokenizer.ggml.scores"));
  EXPECT_NE(refused(with_list<float>("tokenizer.ggml.scores", 6, {1, 2, 3})), "accepted");
  EXPECT_NE(refused(with_list<float>("tokenizer.ggml.scores", 6, {1, 2, 3, std::numeric_limits<float>::quiet_NaN()})),
            "accepted");
  EXPECT_NE(refused(with_list<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1})), "accepted");
  EXPECT_NE(refused(with_list<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 7})), "accepted");
  EXPECT_NE(refused(with_list<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, -1})), "accepted");
  for (const char* merge : {"ab", "", " ab", "ab "}) {
    EXPECT_NE(refused(with_texts("tokenizer.ggml.merges", {merge})), "accepted") << merge;
  }
  for (const char* key : {"bos", "eos", "eot", "eom", "unknown", "padding"}) {
    const std::string name = std::string("tokenizer.ggml.") + key + "_token_id";
    for (const uint32_t id : {4U, 0xFFFFFFFFU}) EXPECT_THAT(refused(with(name, id)), HasSubstr(name));
    EXPECT_THAT(refused({name, raw(uint32_t{5}) + raw(int32_t{-1})}), HasSubstr(name));
    EXPECT_EQ(refused(with(name, 3)), "accepted");
  }
  EXPECT_NE(refused(with("tokenizer.ggml.add_bos_token", 1)), "accepted");
  for (const char* name : {"tokenizer.chat_template", "tokenizer.chat_template.tool_use"}) {
    EXPECT_THAT(refused(with_text(name, std::string(50 << 20, '{'))), HasSubstr("more than"));
  }
}

}  // namespace
}  // namespace quern
