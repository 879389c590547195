#include "apps/instance.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <set>

#include "apps/hub/resolve.h"
#include "apps/loader_text.h"
#include "apps/plan_log_file.h"
#include "apps/progress.h"
#include "base/clock.h"
#include "base/file.h"
#include "engine/model_executor.h"
#include "engine/plan_log.h"
#include "engine/pooling_executor.h"
#include "formats/list.h"
#include "model/families/family.h"
#include "tensor/failing_device.h"

namespace quern {
namespace {

constexpr int64_t default_kv_bytes = int64_t{4} << 30;  // at most, when the user names no size
/// 33 tiles of 256 tokens: with a matrix of any multiple of 512 rows they are whole rounds of tiles of 128 x 256 for
/// the 132 multiprocessors of an H100 or H200; 8,192 tokens take 3 % longer each.
constexpr int gpu_batched_tokens = 8448;
constexpr double most_bytes = 0x1p50;
constexpr int most_tokens = 1 << 20;                       // of a step
constexpr int64_t gpu_reserve_bytes = int64_t{512} << 20;  // what the driver and libraries take later

/// Everything that a user left open is chosen for this device and model.
Result<InstanceOptions> resolved(InstanceOptions options, DeviceKind device, const Checkpoint& checkpoint) {
  const bool gpu = device == DeviceKind::cuda;
  if (options.max_num_seqs < 0) options.max_num_seqs = gpu ? 256 : 64;
  if (options.max_num_batched_tokens < 0) {
    options.max_num_batched_tokens = std::max(gpu ? gpu_batched_tokens : 512, options.max_num_seqs);
  }
  if (options.chunked_prefill_size < 0) options.chunked_prefill_size = gpu ? 512 : 0;
  if (options.dtype == "auto") {
    options.dtype = "float32";
    if (gpu) {
      const Json* stored = checkpoint.config().find("torch_dtype");
      if (stored == nullptr) stored = checkpoint.config().find("dtype");
      const bool half = checkpoint.kind() == CheckpointKind::gguf ||
                        (stored != nullptr && stored->is_string() && stored->as_string() == "float16");
      options.dtype = half ? "float16" : "bfloat16";
    }
  }
  if (options.kv_cache_dtype == "auto") options.kv_cache_dtype = options.dtype == "bfloat16" ? "bfloat16" : "float16";
  if (!gpu && options.dtype != "float32") {
    return Error{
        fmt::format("--dtype {}: the CPU computes with float32 activations; say float32 or auto", options.dtype)};
  }
  if (options.kv_cache_dtype == "fp8_e4m3") options.kv_cache_dtype = "fp8";
  if (!gpu && options.kv_cache_dtype == "bfloat16") {
    return Error{
        "--kv-cache-dtype bfloat16: the CPU keeps keys and values as float16 or fp8; say one of these, or auto"};
  }
  if (options.max_num_batched_tokens < options.max_num_seqs) {
    return Error{
        fmt::format("--max-num-batched-tokens {} is less than --max-num-seqs {}; a step has room for a token of "
                    "every sequence",
                    options.max_num_batched_tokens, options.max_num_seqs)};
  }
  return options;
}

Dtype dtype_of(const std::string& name) {
  return name == "float32" ? Dtype::f32 : name == "bfloat16" ? Dtype::bf16 : name == "fp8" ? Dtype::f8 : Dtype::f16;
}

KvLayout kv_layout_of(const InstanceOptions& options, const DecoderSpec& spec) {
  return kv_layout(spec, dtype_bytes(dtype_of(options.kv_cache_dtype)));
}

/// A model that is quantized already keeps what it has.
Quantize quantize_of(const InstanceOptions& options, const Checkpoint& checkpoint) {
  const bool already = !checkpoint.invented() && checkpoint.config().present("quantization_config") != nullptr;
  return options.quantization == "fp8" && !already ? Quantize::fp8 : Quantize::no;
}

Result<Json> parse_overrides(const std::string& text) {
  if (text.empty()) return Json();
  auto given = Json::parse(text);
  if (!given.ok() || !given->is_object())
    return Error{"--hf-overrides must be a JSON object, such as '{\"rope_theta\": 1e6}'"};
  return given;
}

/// The context length: what was asked for, or what the model was made for, cut to what the pages hold.
Result<int> choose_model_len(const InstanceOptions& options, const ModelPlan& plan, int64_t tokens) {
  const DecoderSpec& spec = plan.spec;
  if (options.max_model_len == "auto") {
    const int natural =
        plan.task.max_tokens > 0 ? std::min(plan.task.max_tokens, spec.max_positions) : spec.max_positions;
    return static_cast<int>(std::min<int64_t>(natural, tokens));
  }
  ASSIGN_OR_RETURN(const int64_t wanted, parse_integer(options.max_model_len));
  if (wanted > spec.max_positions) {
    return Error{
        fmt::format("--max-model-len {} is more than the {} positions of the model; say less, or change "
                    "max_position_embeddings with --hf-overrides",
                    wanted, spec.max_positions)};
  }
  if (wanted > tokens) {
    return Error{
        fmt::format("--max-model-len {} does not fit: the largest that does is --max-model-len {}; say that, or raise "
                    "--kv-cache-memory-bytes",
                    wanted, tokens)};
  }
  return static_cast<int>(wanted);
}

/// Tokens that one sequence alone can have in `pages` pages: every full group needs one for each 16 tokens, a window
/// group only for what its window and one step span.
int64_t tokens_of_pages(const KvLayout& kv, int64_t pages, int step_tokens) {
  int64_t full_groups = 0;
  int64_t bounded = 0;
  for (const KvGroup& group : kv.groups) {
    if (group.window == 0) {
      ++full_groups;
    } else {
      bounded += (group.window + step_tokens) / kv.page_tokens + 2;
    }
  }
  if (full_groups == 0)
    return pages >= bounded ? INT32_MAX : pages / static_cast<int64_t>(kv.groups.size()) * kv.page_tokens;
  const int64_t all_grow = pages / static_cast<int64_t>(kv.groups.size()) * kv.page_tokens;
  const int64_t some_bounded = (pages - bounded) / full_groups * kv.page_tokens;
  return std::max(all_grow, some_bounded);
}

ModelExecutorOptions executor_options(const InstanceOptions& options, const DecoderSpec& spec, const MemoryPlan& plan) {
  ModelExecutorOptions made;
  made.rows = options.max_num_seqs;
  made.max_tokens = options.max_num_batched_tokens;
  made.max_model_len = plan.max_model_len;
  made.pages = static_cast<int32_t>(plan.kv_pages);
  made.vocab = spec.vocab;
  made.kv = kv_layout_of(options, spec);
  made.kv_dtype = dtype_of(options.kv_cache_dtype);
  made.activations = dtype_of(options.dtype);
  made.capture = !options.enforce_eager;
  made.trace = options.trace;
  made.scored_tokens = options.scored_tokens;
  made.see_logits = options.see_logits;
  return made;
}

/// Bytes that the KV cache may take beside `other` bytes.
int64_t room_for_kv(const InstanceOptions& options, DeviceKind device, const MemoryPlan& plan, int64_t other) {
  if (device == DeviceKind::cpu) {
    return std::min(default_kv_bytes, std::max<int64_t>(0, (plan.free - plan.weights - plan.states) / 2));
  }
  const auto budget = static_cast<int64_t>(static_cast<double>(plan.free) * options.gpu_memory_utilization);
  const int64_t used = plan.weights + plan.states + other;
  const int64_t room = std::max<int64_t>(0, std::min(budget, plan.free - gpu_reserve_bytes) - used);
  return options.memory_bytes == 0 ? room : std::min(room, std::max(default_kv_bytes, options.memory_bytes - used));
}

/// A model that sees whole sequences keeps nothing from step to step: the largest step says what it needs.
Status choose_step_pages(const InstanceOptions& options, const ModelPlan& model, MemoryPlan* plan) {
  const KvLayout kv = kv_layout_of(options, model.spec);
  plan->kv_page_bytes = kv.page_bytes;
  plan->kv_pages = step_pages(options.max_num_batched_tokens, options.max_num_seqs, kv.page_tokens);
  plan->kv_tokens = options.max_num_batched_tokens;
  auto tokens = choose_model_len(options, model, plan->kv_tokens);
  if (!tokens.ok() && plan->kv_tokens < model.spec.max_positions) {
    return Error{fmt::format("{} (for this model, raise --max-num-batched-tokens)", tokens.error().message)};
  }
  ASSIGN_OR_RETURN(plan->max_model_len, std::move(tokens));
  return {};
}

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// `bytes` are those of the KV cache. Who named no size has nothing to raise: all the rest of the memory is too small.
Error no_room_for_kv(const InstanceOptions& options, const KvLayout& kv, int64_t bytes, const MemoryPlan& plan) {
  if (options.kv_cache_memory_bytes == 0) {
    return Error{
        fmt::format("not enough memory: the weights take {:.1f} MiB and {:.1f} MiB are free, which leaves no room for "
                    "a KV cache; free some memory, or take a smaller model",
                    mebibytes(plan.weights), mebibytes(plan.free))};
  }
  return Error{
      fmt::format("no room for a KV cache: {} bytes hold less than one page of {} bytes for each of {} layer groups; "
                  "raise --kv-cache-memory-bytes",
                  bytes, kv.page_bytes, kv.groups.size())};
}

/// `room` is what the KV cache may take when the user names no size.
Status choose_kv(const InstanceOptions& options, const ModelPlan& model, int64_t room, MemoryPlan* plan) {
  const DecoderSpec& spec = model.spec;
  if (!is_causal(spec)) return choose_step_pages(options, model, plan);
  const KvLayout kv = kv_layout_of(options, spec);
  plan->kv_page_bytes = kv.page_bytes;
  int64_t bytes = options.kv_cache_memory_bytes;
  if (bytes == 0) {
    // Room for every row at full length, and for two snapshots of its state, but no more than a part of what is free.
    const int64_t per_row = (spec.max_positions / kv.page_tokens + 2) * static_cast<int64_t>(kv.groups.size());
    bytes = std::min((per_row + 2 * kv.state_pages()) * kv.page_bytes * options.max_num_seqs, room);
  }
  plan->kv_pages = std::min<int64_t>(bytes / kv.page_bytes, INT32_MAX);
  plan->kv_tokens = tokens_of_pages(kv, plan->kv_pages, options.max_num_batched_tokens);
  if (plan->kv_tokens < kv.page_tokens) return no_room_for_kv(options, kv, bytes, *plan);
  ASSIGN_OR_RETURN(plan->max_model_len, choose_model_len(options, model, plan->kv_tokens));
  return {};
}

Status check_options(const InstanceOptions& options) {
  const auto one_of = [](const char* flag, const std::string& value,
                         std::initializer_list<std::string_view> known) -> Status {
    if (std::find(known.begin(), known.end(), value) != known.end()) return {};
    return Error{fmt::format("{} {}: say {}", flag, value, fmt::join(known, " or "))};
  };
  TRY(one_of("--device", options.device, {"auto", "cpu", "cuda"}));
  TRY(one_of("--dtype", options.dtype, {"auto", "float32", "float16", "bfloat16"}));
  TRY(one_of("--task", options.task, {"auto", "generate", "embed", "score"}));
  TRY(one_of("--quantization", options.quantization, {"auto", "fp8"}));
  TRY(one_of("--kv-cache-dtype", options.kv_cache_dtype, {"auto", "float16", "bfloat16", "fp8", "fp8_e4m3"}));
  return {};
}

Result<Json> read_generation_config(const Checkpoint& checkpoint, const std::string& choice) {
  if (choice == "vllm") return Json(Json::Object{});
  if (choice == "auto") {
    const Json& config = checkpoint.generation_config();
    return config.is_object() ? config : Json(Json::Object{});
  }
  ASSIGN_OR_RETURN(const std::string text, read_file(choice + "/generation_config.json"));
  auto config = Json::parse(text);
  if (!config.ok() || !config->is_object())
    return Error{fmt::format("{}/generation_config.json is no JSON object", choice)};
  return config;
}

void add_ids(const Json* ids, std::set<int32_t>* into) {
  if (ids == nullptr) return;
  const auto add = [&](const Json& id) {
    if (id.is_integer() && id.as_integer() >= 0 && id.as_integer() <= INT32_MAX)
      into->insert(static_cast<int32_t>(id.as_integer()));
  };
  if (ids->is_array()) {
    for (const Json& id : ids->items()) add(id);
  } else {
    add(*ids);
  }
}

/// The tokens of "suppress_tokens" and the like, sorted.
Result<std::vector<int32_t>> suppressed_tokens(const Checkpoint& checkpoint, const Json* ids) {
  constexpr size_t most = 1024;
  std::set<int32_t> tokens;
  add_ids(ids, &tokens);
  if (tokens.size() > most) {
    return Error{fmt::format("the generation config of {} suppresses {} tokens, more than the {} allowed",
                             checkpoint.path(), tokens.size(), most)};
  }
  return std::vector<int32_t>(tokens.begin(), tokens.end());
}

Result<GenerationConfig> generation_defaults(const Checkpoint& checkpoint, const Tokenizer& tokenizer,
                                             const std::string& choice) {
  GenerationConfig defaults;
  ASSIGN_OR_RETURN(defaults.values, read_generation_config(checkpoint, choice));
  std::set<int32_t> ends;
  add_ids(checkpoint.config().find("eos_token_id"), &ends);
  add_ids(checkpoint.generation_config().find("eos_token_id"), &ends);
  add_ids(defaults.values.find("eos_token_id"), &ends);
  ends.insert(tokenizer.end_of_generation().begin(), tokenizer.end_of_generation().end());
  defaults.end_tokens.assign(ends.begin(), ends.end());
  ASSIGN_OR_RETURN(defaults.suppressed, suppressed_tokens(checkpoint, defaults.values.find("suppress_tokens")));
  ASSIGN_OR_RETURN(defaults.suppressed_first,
                   suppressed_tokens(checkpoint, defaults.values.find("begin_suppress_tokens")));
  return defaults;
}

EngineOptions engine_options(const InstanceOptions& options, const DecoderSpec& spec, const MemoryPlan& plan) {
  EngineOptions made;
  made.groups = groups_of(is_causal(spec) ? kv_layout_of(options, spec) : KvLayout{});
  made.pages = is_causal(spec) ? static_cast<int32_t>(plan.kv_pages) : 0;
  made.max_num_seqs = options.max_num_seqs;
  made.max_num_batched_tokens = options.max_num_batched_tokens;
  made.chunked_prefill_size = options.chunked_prefill_size;
  made.max_model_len = plan.max_model_len;
  made.max_queued_requests = options.max_queued_requests;
  // A mean needs the hidden states of all tokens, which no page holds.
  made.prefix_caching = options.prefix_caching && (!spec.pooler || spec.pooler->pooling == Pooling::last);
  made.reserve_max_len = options.reserve_max_len;
  return made;
}

}  // namespace

void add_instance_flags(Flags& flags, InstanceOptions& o) {
  flags.add("--model", "PATH", "a .gguf file, a folder with safetensors, or ORG/NAME of a hub", &o.model);
  flags.add("--revision", "NAME", "a branch, a tag or a commit of a hub's model", &o.revision);
  flags.add("--download-dir", "FOLDER", "", &o.download_dir);  // vLLM's; here $HF_HUB_CACHE says it
  flags.add("--tokenizer", "PATH", "another tokenizer.json, folder or .gguf", &o.tokenizer);
  flags.add("--chat-template", "FILE", "another chat template: a file, or its text", &o.chat_template);
  flags.add("--hf-overrides", "JSON", "laid over config.json", &o.hf_overrides);
  flags.add("--generation-config", "auto|vllm|DIR", "where sampling defaults come from; vllm: nowhere",
            &o.generation_config);
  flags.add("--device", "auto|cpu|cuda", "where to compute; auto: a GPU if there is one", &o.device);
  flags.add("--dtype", "auto|TYPE", "of activations: float32; on a GPU also float16, bfloat16", &o.dtype);
  flags.add("--quantization", "auto|fp8", "fp8: float weights of linear layers become 8-bit floats", &o.quantization);
  flags.add("--kv-cache-dtype", "auto|TYPE", "of cached keys and values: float16, fp8; on a GPU also bfloat16",
            &o.kv_cache_dtype);
  flags.add("--gpu-memory-utilization", "P", "part of the GPU's free memory to take (0.9)", &o.gpu_memory_utilization,
            Bounds{0, 1, true});
  flags.add("--load-format", "auto|dummy", "dummy or dummy:FORMAT: random weights for a config.json", &o.load_format);
  flags.add("--enforce-eager", "capture no steps on a GPU", &o.enforce_eager);
  flags.add("--max-model-len", "N|auto", "context length; auto: what fits", &o.max_model_len, between(1, INT32_MAX),
            "auto");
  flags.add("--kv-cache-memory-bytes", "N", "size of the KV cache (4Gi, 500m)", &o.kv_cache_memory_bytes,
            between(1, most_bytes));
  flags.add("--max-num-seqs", "N", "sequences that run together (CPU 64, GPU 256)", &o.max_num_seqs, between(1, 4096));
  flags.add("--max-num-batched-tokens", "N", "tokens of one step (CPU 512, GPU 8448)", &o.max_num_batched_tokens,
            between(1, most_tokens));
  flags.add("--chunked-prefill-size", "N", "tokens of one prompt in a step in which others decode; 0: all (GPU 512)",
            &o.chunked_prefill_size, between(0, most_tokens));
  flags.add("--max-queued-requests", "N", "waiting requests; more get 429", &o.max_queued_requests,
            between(0, 1 << 20));
  flags.add("--threads", "N", "worker threads; 0: one per core (default)", &o.threads, between(0, 1024));
  flags.add("--seed", "N", "seed of requests that name none; 0: random (default)", &o.seed, between(0, INT32_MAX));
  flags.add("--enable-prefix-caching", "reuse the KV of equal prefixes (default; --no-... turns it off)",
            &o.prefix_caching);
  flags.add("--plan-log", "FILE", "write every step's plan and result, for quern replay", &o.plan_log);
  flags.add("--batch-invariant", "same bits whatever else is in the batch; on the CPU always so", &o.batch_invariant);
}

void add_task_flag(Flags& flags, InstanceOptions& o) {
  flags.add("--task", "auto|TASK", "generate, embed or score; auto: what the model's files say", &o.task);
  flags.alias("--convert", "--task");
}

std::string describe(const MemoryPlan& plan) {
  const auto line = [](const char* what, int64_t bytes, const std::string& note) {
    return fmt::format("  {:14}{:>16} bytes  {:>9.1f} MiB  {}\n", what, bytes, mebibytes(bytes), note);
  };
  return line("weights", plan.weights, "") +
         line("KV cache", plan.kv(),
              fmt::format("{} pages of {} bytes; up to {} tokens", plan.kv_pages, plan.kv_page_bytes, plan.kv_tokens)) +
         (plan.states > 0 ? line("states", plan.states, "of recurrent layers, for each of --max-num-seqs") : "") +
         line("executor", plan.executor, "activations, logits, step inputs, page tables") +
         line("total", plan.total(), fmt::format("context {} tokens", plan.max_model_len)) +
         line("free now", plan.free, "");
}

namespace {

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& path, const std::string& load_format) {
  if (load_format == "auto") return Checkpoint::open(path);
  std::string format = load_format == "dummy" ? "bf16" : "";
  if (load_format.starts_with("dummy:")) format = load_format.substr(6);
  std::optional<FormatId> id;
  std::string known;
  for_each_format([&]<typename Format>(Format) {
    if (format == Format::name) id = Format::id;
    known += fmt::format(" {}", Format::name);
  });
  if (!id)
    return Error{fmt::format("--load-format {}: say auto, dummy or dummy:FORMAT, with one of{}", load_format, known)};
  return invented_checkpoint(path, *id);
}

/// QUERN_DEVICE_FAILS_AFTER=N: it dies after so many copies, marks and waits, for tests of what happens then.
std::unique_ptr<Device> maybe_failing(std::unique_ptr<Device> device) {
  const char* const calls = std::getenv("QUERN_DEVICE_FAILS_AFTER");
  const auto count = parse_integer(calls == nullptr ? "" : calls);
  return count.ok() && *count > 0 ? failing_device(std::move(device), *count) : std::move(device);
}

Result<std::unique_ptr<Device>> open_any_device(const InstanceOptions& options) {
  DeviceOptions wanted;
  wanted.threads = options.threads;
  wanted.batch_invariant = options.batch_invariant;
  if (options.device == "cpu") return make_device(DeviceKind::cpu, wanted);
  auto gpu = make_device(DeviceKind::cuda, wanted);
  if (gpu.ok() || options.device == "cuda") return gpu;
  return make_device(DeviceKind::cpu, wanted);
}

Result<std::unique_ptr<Device>> open_device(const InstanceOptions& options) {
  ASSIGN_OR_RETURN(auto device, open_any_device(options));
  return maybe_failing(std::move(device));
}

/// `Model` is a plan or a loaded one.
template <typename Model>
PoolingModel pooling_model(const Model& model) {
  return {model.decoder, model.pooler, model.spec.dim, is_causal(model.spec)};
}

/// A step has to hold the longest sequence; keys and values live as long as activations do, in their type.
void see_whole_sequences(const InstanceOptions& asked, const ModelPlan& plan, InstanceOptions* options) {
  options->kv_cache_dtype = options->dtype;
  if (asked.max_num_batched_tokens >= 0) return;
  const auto wanted = parse_integer(asked.max_model_len);
  const int longest = wanted.ok()                ? static_cast<int>(std::min<int64_t>(*wanted, plan.spec.max_positions))
                      : plan.task.max_tokens > 0 ? std::min(plan.task.max_tokens, plan.spec.max_positions)
                                                 : plan.spec.max_positions;
  options->max_num_batched_tokens = std::max(options->max_num_batched_tokens, longest);
}

}  // namespace

Result<OpenedModel> open_model(const InstanceOptions& asked) {
  InstanceOptions options = asked;
  if (options.dtype == "half") options.dtype = "float16";
  if (options.dtype == "float") options.dtype = "float32";
  TRY(check_options(options));
  OpenedModel opened;
  ASSIGN_OR_RETURN(FoundModel found, find_model(options.model, options.revision, options.download_dir));
  ASSIGN_OR_RETURN(opened.checkpoint, open_checkpoint(found.path, options.load_format));
  opened.name = std::move(found.name);
  ASSIGN_OR_RETURN(const Json overrides, parse_overrides(options.hf_overrides));
  ASSIGN_OR_RETURN(opened.device, open_device(options));
  const DeviceKind kind = opened.device->kind();
  ASSIGN_OR_RETURN(opened.options, resolved(options, kind, *opened.checkpoint));
  ASSIGN_OR_RETURN(ModelPlan plan, plan_model(*opened.checkpoint, kind, overrides,
                                              quantize_of(options, *opened.checkpoint), options.task));
  if (!is_causal(plan.spec)) see_whole_sequences(options, plan, &opened.options);
  MemoryPlan& memory = opened.memory;
  memory.free = opened.device->free_bytes();
  memory.weights = plan.weight_bytes;
  const auto executor_bytes = [&] {
    const ModelExecutorOptions made = executor_options(opened.options, plan.spec, memory);
    return plan.spec.pooler ? pooling_executor_bytes(pooling_model(plan), *opened.device, made)
                            : model_executor_bytes(plan.decoder, *opened.device, made);
  };
  memory.max_model_len = plan.spec.max_positions;  // at most
  memory.states = row_state_bytes(executor_options(opened.options, plan.spec, memory));
  TRY(choose_kv(opened.options, plan, room_for_kv(opened.options, kind, memory, executor_bytes()), &memory));
  memory.executor = executor_bytes();
  opened.plan = std::move(plan);
  return opened;
}

namespace {

/// Before anything is loaded.
Status check_memory(const MemoryPlan& plan) {
  if (plan.total() <= plan.free) return {};
  const char* const advice = plan.weights > plan.free ? "free some memory, or take a smaller model"
                                                      : "lower --kv-cache-memory-bytes or --max-num-seqs";
  return Error{
      fmt::format("not enough memory: {:.1f} MiB are needed (weights {:.1f}, KV cache {:.1f}, states {:.1f}, executor "
                  "{:.1f}) and {:.1f} MiB are free; {}",
                  mebibytes(plan.total()), mebibytes(plan.weights), mebibytes(plan.kv()), mebibytes(plan.states),
                  mebibytes(plan.executor), mebibytes(plan.free), advice)};
}

}  // namespace

Result<std::unique_ptr<Instance>> load_instance(const InstanceOptions& options) {
  const int64_t start = now_us();
  ASSIGN_OR_RETURN(OpenedModel opened, open_model(options));
  TRY(check_memory(opened.memory));
  auto instance = std::make_unique<Instance>();
  instance->memory = opened.memory;
  instance->options = opened.options;
  instance->name = opened.name;
  instance->checkpoint = std::move(opened.checkpoint);
  instance->device = std::move(opened.device);
  if (!instance->checkpoint->invented() || !options.tokenizer.empty()) {
    ASSIGN_OR_RETURN(instance->tokenizer, load_tokenizer(*instance->checkpoint, options.tokenizer));
    ASSIGN_OR_RETURN(instance->chat_template, load_chat_template(*instance->checkpoint, options.chat_template));
    ASSIGN_OR_RETURN(instance->generation,
                     generation_defaults(*instance->checkpoint, *instance->tokenizer, options.generation_config));
  }
  Progress progress("loading", options.quiet);
  LoadOptions load;
  ASSIGN_OR_RETURN(load.config_overrides, parse_overrides(options.hf_overrides));
  load.quantize = quantize_of(options, *instance->checkpoint);
  load.task = options.task;
  load.threads = options.threads;
  const int64_t bytes = instance->memory.weights;
  load.progress = [&](double part) { progress.update(static_cast<int64_t>(part * static_cast<double>(bytes)), bytes); };
  ASSIGN_OR_RETURN(instance->model, load_model(*instance->checkpoint, *instance->device, load));
  instance->load_seconds = seconds_since(start);
  return instance;
}

Result<std::unique_ptr<Executor>> make_executor(Instance& instance) {
  const ModelExecutorOptions made = executor_options(instance.options, instance.spec(), instance.memory);
  if (instance.spec().pooler) return make_pooling_executor(pooling_model(*instance.model), *instance.device, made);
  return make_model_executor(instance.model->decoder, *instance.device, made);
}

Result<std::unique_ptr<Instance>> make_instance(const InstanceOptions& options) {
  ASSIGN_OR_RETURN(auto instance, load_instance(options));
  ASSIGN_OR_RETURN(auto executor, make_executor(*instance));
  EngineOptions engine = engine_options(instance->options, instance->spec(), instance->memory);
  engine.on_dead = options.on_dead;
  if (!options.plan_log.empty()) {
    ASSIGN_OR_RETURN(const auto log, PlanLog::create(options.plan_log, engine));
    engine.on_plan = [log](const StepPlan& plan) { log->write(plan_log_line(plan)); };
    engine.on_masks = [log](const StepMasks& masks) { log->write(plan_log_line(masks)); };
    engine.on_result = [log](const StepResult& result) { log->write(plan_log_line(result)); };
  }
  instance->engine = std::make_unique<Engine>(engine, std::move(executor));
  return instance;
}

}  // namespace quern
