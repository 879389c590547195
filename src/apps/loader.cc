#include "apps/loader.h"

#include <fmt/format.h>
#include <utility>

#include "base/thread_pool.h"
#include "model/families/family.h"

namespace quern {
namespace {

/// Stands for memory in a plan: addresses are counted from here and never touched.
std::byte* const nowhere = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);

/// Replaces members, those of the text part too where there is one.
Json overridden(Json config, const Json& overrides) {
  if (!overrides.is_object()) return config;
  Json text = config.find("text_config") != nullptr ? *config.find("text_config") : Json();
  for (const auto& [key, value] : overrides.members()) {
    config.set(key, value);
    if (text.has(key)) text.set(key, value);
  }
  if (text.is_object() && !overrides.has("text_config")) config.set("text_config", std::move(text));
  return config;
}

struct Built {
  Decoder decoder;
  Pooler pooler;
};

/// Builds the model from `store`, and checks that no tensor was left aside.
Result<Built> build(const DecoderSpec& spec, WeightStore& store) {
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::build(spec, store));
  Pooler pooler;
  if (spec.pooler) {
    ASSIGN_OR_RETURN(pooler, Pooler::build(spec, store));
  }
  TRY(store.check_all_used(static_cast<int>(spec.layers.size()), spec.architecture));
  return Built{std::move(decoder), pooler};
}

}  // namespace

Result<DeviceMemory> DeviceMemory::allocate(Device& device, int64_t bytes) {
  DeviceMemory memory;
  ASSIGN_OR_RETURN(memory.data_, device.allocate(bytes));
  memory.device_ = &device;
  memory.bytes_ = bytes;
  return memory;
}

Result<DecoderSpec> read_spec(const Checkpoint& checkpoint, const Json& config_overrides) {
  auto spec = make_spec(overridden(checkpoint.config(), config_overrides));
  if (!spec.ok()) return Error{fmt::format("{}: {}", checkpoint.path(), spec.error().message)};
  // A GGUF file holds norm weights with the offset already added.
  if (checkpoint.kind() == CheckpointKind::gguf) spec->norm.offset = 0.0F;
  return spec;
}

Result<ModelPlan> plan_model(const Checkpoint& checkpoint, DeviceKind device, const Json& config_overrides,
                             Quantize quantize, const std::string& task) {
  ASSIGN_OR_RETURN(DecoderSpec spec, read_spec(checkpoint, config_overrides));
  ASSIGN_OR_RETURN(Task chosen,
                   choose_task(checkpoint, overridden(checkpoint.config(), config_overrides), task, &spec));
  WeightStore store(checkpoint, device, nowhere, quantize, spec.names);
  ASSIGN_OR_RETURN(Built built, build(spec, store));
  return ModelPlan{std::move(spec), std::move(built.decoder), built.pooler, std::move(chosen), store.bytes()};
}

Result<LoadedModel> load_model(const Checkpoint& checkpoint, Device& device, const LoadOptions& options) {
  ASSIGN_OR_RETURN(ModelPlan plan,
                   plan_model(checkpoint, device.kind(), options.config_overrides, options.quantize, options.task));
  const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  if (plan.weight_bytes > device.free_bytes()) {
    return Error{fmt::format("{}: the weights take {:.1f} MiB of memory, but only {:.1f} MiB are free",
                             checkpoint.path(), mebibytes(plan.weight_bytes), mebibytes(device.free_bytes()))};
  }
  ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::allocate(device, plan.weight_bytes));
  WeightStore store(checkpoint, device.kind(), memory.data(), options.quantize, plan.spec.names);
  ASSIGN_OR_RETURN(Built built, build(plan.spec, store));
  CHECK(store.bytes() == plan.weight_bytes);
  store.fill(device, options.threads > 0 ? options.threads : usable_cores(), options.progress);
  TRY(store.check_scales());
  TRY(checkpoint.check_unchanged());
  return LoadedModel{std::move(plan.spec), std::move(memory), std::move(built.decoder), built.pooler,
                     std::move(plan.task)};
}

}  // namespace quern
