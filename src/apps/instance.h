// Instance: a model ready to answer: device, weights, KV pool, executor, engine, and the text side. Created and
// destroyed whole. Thread: main.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/loader.h"
#include "base/flags.h"
#include "base/json.h"
#include "checkpoint/source.h"
#include "engine/engine.h"
#include "engine/scorer.h"
#include "tensor/device.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quern {

/// The flags that say what is loaded and how; `run`, `serve`, `bench` and `replay` share them.
struct InstanceOptions {
  std::string model;                       // empty: the built-in default
  std::string revision;                    // of a hub's model; empty: main
  std::string download_dir;                // where models of hubs are kept; empty: as the environment says
  std::string tokenizer;                   // path of another tokenizer.json or .gguf
  std::string chat_template;               // a file, or the template itself
  std::string hf_overrides;                // JSON object laid over config.json
  std::string generation_config = "auto";  // auto, vllm, or a folder
  std::string dtype = "auto";
  std::string quantization = "auto";  // auto: weights as they are stored; or fp8
  std::string kv_cache_dtype = "auto";
  std::string max_model_len = "auto";
  std::string device = "auto";
  std::string task = "generate";     // auto: what the files say; or generate, embed, score
  std::string load_format = "auto";  // auto; dummy or dummy:FORMAT: random weights for a config.json
  double gpu_memory_utilization = 0.9;
  std::string plan_log;
  int64_t kv_cache_memory_bytes = 0;  // 0: chosen from what is free
  int64_t memory_bytes = 0;           // for this model beside others, when nobody says how large its KV cache is
  int max_num_seqs = -1;              // -1: 64 on the CPU, 256 on a GPU
  int max_num_batched_tokens = -1;    // -1: 512 on the CPU, 8448 on a GPU
  int chunked_prefill_size = -1;      // -1: 512 on a GPU, no limit on the CPU
  int max_queued_requests = 1024;
  int threads = 0;
  int seed = 0;
  bool prefix_caching = true;
  bool batch_invariant = false;
  bool enforce_eager = false;
  bool reserve_max_len = false;  // benchmark only
  bool quiet = false;
  Trace* trace = nullptr;                                  // watches every kernel
  std::function<void(const std::string& reason)> on_dead;  // the device died and every request has been answered
  int scored_tokens = 64;                                  // of prompts, whose logits are there at the same time
  SeeLogits see_logits;                                    // is shown the logits of scored prompt tokens
};
void add_instance_flags(Flags& flags, InstanceOptions& options);
/// For commands that serve other models than those that make text.
void add_task_flag(Flags& flags, InstanceOptions& options);

/// Where every byte goes; exact.
struct MemoryPlan {
  int64_t weights = 0;
  int64_t kv_pages = 0;  // count
  int64_t kv_page_bytes = 0;
  int64_t kv_tokens = 0;  // that many tokens of one long sequence
  int64_t states = 0;     // recurrent states of all rows
  int64_t executor = 0;   // activations, logits, step inputs, page tables
  int64_t free = 0;       // on the device before
  int max_model_len = 0;

  int64_t kv() const { return kv_pages * kv_page_bytes; }
  int64_t total() const { return weights + kv() + states + executor; }
};
std::string describe(const MemoryPlan& plan);

/// Sampling defaults, end tokens and those that are never chosen: generation_config.json or the GGUF's keys, and what
/// the vocabulary says.
struct GenerationConfig {
  Json values;                      // temperature, top_p, top_k, min_p, repetition_penalty, as far as given
  std::vector<int32_t> end_tokens;  // sorted
  // Sorted.
  std::vector<int32_t> suppressed;        // "suppress_tokens", which are never chosen
  std::vector<int32_t> suppressed_first;  // "begin_suppress_tokens", which are not chosen as the first token

  /// Lets an answer have none of the suppressed tokens.
  void suppress(SamplingParams& sampling) const {
    for (const int32_t token : suppressed) sampling.bad_words.push_back({token});
    sampling.not_first = suppressed_first;
  }
};

/// What is known before any weight is read.
struct OpenedModel {
  InstanceOptions options;  // with nothing left to choose
  std::string name;         // what clients may call the model
  std::unique_ptr<Checkpoint> checkpoint;
  std::optional<ModelPlan> plan;
  std::unique_ptr<Device> device;
  MemoryPlan memory;
};
Result<OpenedModel> open_model(const InstanceOptions& options);

struct Instance {
  InstanceOptions options;  // with nothing left to choose
  std::string name;         // what clients may call the model
  std::unique_ptr<Checkpoint> checkpoint;
  MemoryPlan memory;
  std::shared_ptr<const Tokenizer> tokenizer;  // null for random weights without --tokenizer
  std::optional<ChatTemplate> chat_template;
  GenerationConfig generation;
  double load_seconds = 0.0;
  // Destroyed from the last to the first: the engine stops before its weights go.
  std::unique_ptr<Device> device;
  std::optional<LoadedModel> model;
  std::unique_ptr<Engine> engine;

  const DecoderSpec& spec() const { return model->spec; }
  const Task& task() const { return model->task; }
};

/// Everything but executor and engine.
Result<std::unique_ptr<Instance>> load_instance(const InstanceOptions& options);
/// The executor of a loaded model, which outlives it.
Result<std::unique_ptr<Executor>> make_executor(Instance& instance);
/// A model that answers.
Result<std::unique_ptr<Instance>> make_instance(const InstanceOptions& options);

}  // namespace quern
