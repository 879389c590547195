#include "apps/serve/models.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <utility>

#include "apps/commands.h"
#include "apps/hub/inspect.h"
#include "base/file.h"
#include "base/log.h"

namespace quern {
namespace {

/// Its engine and everything beneath it.
class InstanceService final : public TokenService {
 public:
  explicit InstanceService(std::unique_ptr<Instance> instance) : instance_(std::move(instance)) {}
  SubmitResult submit(Request request) override { return instance_->engine->submit(std::move(request)); }
  void cancel(RequestId id) override { instance_->engine->cancel(id); }
  void stop_accepting() override { instance_->engine->stop_accepting(); }
  void reset_prefix_cache() override { instance_->engine->reset_prefix_cache(); }
  EngineStats stats() const override { return instance_->engine->stats(); }

 private:
  const std::unique_ptr<Instance> instance_;
};

SamplingParams sampling_defaults(const Json& values) {
  SamplingParams sampling;
  const auto number = [&](const char* name, float* into) {
    if (const auto value = values.number(name)) *into = static_cast<float>(*value);
  };
  number("temperature", &sampling.temperature);
  number("top_p", &sampling.top_p);
  number("min_p", &sampling.min_p);
  number("repetition_penalty", &sampling.repetition_penalty);
  if (const auto top_k = values.integer("top_k")) sampling.top_k = static_cast<int32_t>(*top_k);
  if (values.boolean("do_sample") == false && !values.has("temperature")) sampling.temperature = 0.0F;
  return sampling;
}

void complete_pooling(ServerOptions& options, const Instance& instance) {
  const Task& task = instance.task();
  options.output = task.output;
  PoolingOptions& pooling = options.pooling;
  const auto& pooler = instance.spec().pooler;
  pooling.dim = pooler ? pooler->vector_size(instance.spec().dim) : instance.spec().dim;
  pooling.normalize = task.normalize;
  pooling.any_dimensions = task.any_dimensions;
  pooling.dimensions = task.dimensions;
  pooling.prompts = task.prompts;
  pooling.default_prompt = task.default_prompt;
  pooling.sigmoid = task.sigmoid;
  pooling.asks_yes_or_no = pooler && pooler->head && pooler->head->yes_or_no;
}

/// The device's readings, and its memory by owner.
std::vector<Gauge> gauges_of(const Instance& instance) {
  std::vector<Gauge> all;
  for (const DeviceReading& reading : instance.device->readings()) {
    all.push_back({std::string(reading.name), std::string(reading.help), "", reading.value});
  }
  const auto memory = [&](const char* owner, int64_t bytes) {
    all.push_back({"quern_device_memory_bytes", "Device memory that this process holds, by owner.",
                   fmt::format(",owner=\"{}\"", owner), static_cast<double>(bytes)});
  };
  memory("weights", instance.memory.weights);
  memory("kv_cache", instance.memory.kv());
  memory("executor", instance.memory.executor);
  return all;
}

void complete(ServerOptions& options, const ModelCard& card, const Json& generation, const Instance& instance) {
  complete_pooling(options, instance);
  options.model_names = card.names;
  options.model_root = card.root;
  if (auto details = inspect_model(card.root); details.ok()) options.details = std::move(*details);
  options.memory_bytes = instance.memory.total();
  if (instance.device->kind() != DeviceKind::cpu) options.gpu_bytes = options.memory_bytes;
  options.most_sequences = instance.options.max_num_seqs;
  options.max_model_len = instance.memory.max_model_len;
  options.vocab_size = instance.spec().vocab;
  options.end_tokens = instance.generation.end_tokens;
  options.seed = static_cast<uint64_t>(instance.options.seed);
  Json values = instance.generation.values;
  if (generation.is_object()) {
    for (const auto& [name, value] : generation.members()) values.set(name, value);
    if (generation.boolean("do_sample") == false && !generation.has("temperature")) values.set("temperature", 0.0);
  }
  options.defaults.sampling = sampling_defaults(values);
  instance.generation.suppress(options.defaults.sampling);
  if (const auto most = values.integer("max_new_tokens")) {
    options.defaults.max_tokens = static_cast<int32_t>(*most);
  }
  options.gauges = [model = &instance] { return gauges_of(*model); };
}

/// How many of the longest requests the KV cache holds, as vLLM says it.
std::string concurrency(const Instance& instance) {
  const MemoryPlan& memory = instance.memory;
  if (instance.task().output != OutputKind::tokens || memory.kv_tokens >= INT32_MAX) return "";
  return fmt::format("maximum concurrency for {} tokens per request: {:.2f}x\n", memory.max_model_len,
                     static_cast<double>(memory.kv_tokens) / memory.max_model_len);
}

bool is_model(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.extension() == ".gguf" || std::filesystem::exists(path / "config.json", ignored);
}

}  // namespace

NamedPath named_path(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0 && !file_exists(text) && !is_directory(text))
    return {text.substr(0, equals), text.substr(equals + 1)};
  return {"", text};
}

Result<std::vector<NamedPath>> models_in(const std::string& folder) {
  std::error_code error;
  std::vector<NamedPath> models;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (is_model(entry.path())) models.push_back({"", entry.path().string(), true});
  }
  if (error) return Error{fmt::format("--models-dir {}: {}", folder, error.message())};
  if (models.empty())
    return Error{fmt::format("--models-dir {}: has neither .gguf files nor folders with a config.json", folder)};
  std::ranges::sort(models, {}, &NamedPath::path);
  return models;
}

Result<std::unique_ptr<ServedModels>> ServedModels::open(ServedModelsOptions options, std::vector<NamedPath> models) {
  std::unique_ptr<ServedModels> opened(new ServedModels(std::move(options)));
  const ServedModelsOptions& wanted = opened->options_;
  if (models.size() > 1 && !wanted.server.model_names.empty())
    return Error{"--served-model-name names one model; with several, say NAME=PATH for each"};
  if (models.size() > 1 && !wanted.instance.plan_log.empty()) return Error{"--plan-log is for one model"};
  if (models.size() > 1) TRY(opened->choose_memory(models));
  for (const NamedPath& model : models) {
    const Status added = opened->add(model, models.size());
    if (!added.ok() && !model.found) return added.error();
    if (!added.ok()) log_warning("{} is passed over: {}", model.path, added.error().message);
  }
  if (opened->cards_.empty()) return Error{"none of the models can be served"};
  for (const std::string& name : wanted.pinned) {
    const auto known = [&](const ModelCard& card) { return std::ranges::find(card.names, name) != card.names.end(); };
    const auto card = std::ranges::find_if(opened->cards_, known);
    if (card == opened->cards_.end()) return Error{fmt::format("--pin {}: no model is called so", name)};
    card->pinned = card->preload = true;
  }
  return opened;
}

/// Nine parts in ten of what is free, if nobody says otherwise.
Status ServedModels::choose_memory(const std::vector<NamedPath>& models) {
  memory_bytes_ = options_.memory_bytes;
  for (const NamedPath& model : models) {
    if (memory_bytes_ > 0) break;
    InstanceOptions instance = options_.instance;
    instance.model = model.path;
    const auto opened = open_model(instance);
    if (opened.ok()) memory_bytes_ = opened->memory.free / 10 * 9;
    if (!opened.ok() && !model.found) return opened.error();
  }
  return {};
}

Status ServedModels::add(const NamedPath& model, size_t count) {
  InstanceOptions instance = options_.instance;
  instance.model = model.path;
  instance.memory_bytes = memory_bytes_ / static_cast<int64_t>(count);
  ASSIGN_OR_RETURN(const OpenedModel opened, open_model(instance));
  ModelCard card;
  card.names = options_.server.model_names;
  if (card.names.empty()) card.names.push_back(model.name.empty() ? opened.name : model.name);
  card.root = opened.checkpoint->path();
  card.output = opened.plan->task.output;
  card.max_model_len = opened.memory.max_model_len;
  card.bytes = opened.memory.total();
  card.preload = count == 1;
  // The same size again, whatever else is in memory by then.
  if (count > 1 && is_causal(opened.plan->spec)) instance.kv_cache_memory_bytes = opened.memory.kv();
  if (memory_bytes_ > 0 && card.bytes > memory_bytes_) {
    return Error{
        fmt::format("{} needs {} bytes, more than the {} bytes for models; raise --models-memory-bytes or "
                    "lower --kv-cache-memory-bytes",
                    card.names.front(), card.bytes, memory_bytes_)};
  }
  if (!instances_.emplace(card.names.front(), instance).second)
    return Error{fmt::format("two models are called {}; say NAME=PATH for each", card.names.front())};
  cards_.push_back(std::move(card));
  return {};
}

Result<ModelParts> ServedModels::load(const std::string& name) {
  const auto card = std::ranges::find_if(cards_, [&](const ModelCard& one) { return one.names.front() == name; });
  ASSIGN_OR_RETURN(auto instance, make_instance(instances_.at(name)));
  if (!instance->tokenizer) return Error{"random weights have no tokenizer: give --tokenizer FILE"};
  ModelParts parts;
  parts.options = options_.server;
  complete(parts.options, *card, options_.generation, *instance);
  const std::string source = instance->chat_template ? instance->chat_template->source_for_tools() : "";
  ASSIGN_OR_RETURN(parts.options.reply_format, ReplyFormat::make(options_.tool_call_parser, options_.reasoning_parser,
                                                                 source, *instance->tokenizer));
  description_ =
      fmt::format("quern {} serves {} on {}\ntask: {}\n\n{}\n{}", quern_version, name, instance->device->description(),
                  task_name(instance->task().output), describe(instance->memory), concurrency(*instance));
  if (parts.options.reply_format.dialect() != nullptr) description_ += parts.options.reply_format.description() + "\n";
  description_ += fmt::format("ready after {:.2f} s", instance->load_seconds);
  parts.tokenizer = instance->tokenizer;
  if (instance->chat_template)
    parts.chat_template = std::make_shared<const ChatTemplate>(std::move(*instance->chat_template));
  parts.bytes = instance->memory.total();
  parts.engine = std::make_unique<InstanceService>(std::move(instance));
  return parts;
}

}  // namespace quern
