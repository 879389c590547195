#include "apps/loader.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tensor/device.h"

namespace quern {
namespace {

constexpr int dim = 128;
constexpr int hidden = 64;
constexpr int heads = 4;
constexpr int vocab = 2200;  // its rows take more than one task

/// A checkpoint in memory: one layer of Llama whose tensors a test may change.
class FakeCheckpoint final : public Checkpoint {
 public:
  FakeCheckpoint() {
    config_ = Json::parse(fmt::format(R"({{"architectures": ["LlamaForCausalLM"], "vocab_size": {}, "hidden_size": {},
        "intermediate_size": {}, "num_hidden_layers": 1, "num_attention_heads": {}, "max_position_embeddings": 64,
        "attention_bias": true, "tie_word_embeddings": true}})",
                                      vocab, dim, hidden, heads))
                  .value();
    add("model.embed_tokens.weight", {vocab, dim});
    add("model.norm.weight", {dim});
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      add(fmt::format("model.layers.0.{}.weight", norm), {dim});
    }
    for (const char* part : {"q", "k", "v", "o"}) {
      add(fmt::format("model.layers.0.self_attn.{}_proj.weight", part), {dim, dim});
      add(fmt::format("model.layers.0.self_attn.{}_proj.bias", part), {dim});
    }
    add("model.layers.0.mlp.gate_proj.weight", {hidden, dim});
    add("model.layers.0.mlp.up_proj.weight", {hidden, dim});
    add("model.layers.0.mlp.down_proj.weight", {dim, hidden});
  }

  void add(const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float>& values = values_[name];
    values.resize(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(random_() % 1000U) - 500.0F;
    tensors_.push_back({name, "F32", std::move(shape), 0, std::as_bytes(std::span(values))});
  }
  StoredTensor& at(const std::string& name) { return *const_cast<StoredTensor*>(find(name)); }
  std::vector<float>& values(const std::string& name) { return values_[name]; }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const StoredTensor& tensor) { return tensor.name == name; });
  }
  void put_before_names(const std::string& prefix) {
    for (StoredTensor& tensor : tensors_) tensor.name = prefix + tensor.name;
  }

  void put_config_into_text_part() {
    Json whole;
    whole.set("architectures", *config_.find("architectures"));
    whole.set("text_config", config_);
    config_ = whole;
  }

  CheckpointKind kind() const override { return CheckpointKind::safetensors; }
  const std::string& path() const override { return path_; }
  const StoredTensor* find(std::string_view name) const override {
    const auto it =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const StoredTensor& tensor) { return tensor.name == name; });
    return it == tensors_.end() ? nullptr : &*it;
  }
  std::span<const StoredTensor> tensors() const override { return tensors_; }
  const Json& config() const override { return config_; }
  const Json& generation_config() const override { return none_; }
  Result<std::optional<StoredVocabulary>> vocabulary() const override { return std::optional<StoredVocabulary>(); }
  void drop(std::span<const std::byte> /*bytes*/) const override {}

 private:
  std::string path_ = "fake";
  Json config_;
  Json none_;
  std::mt19937 random_{3};
  std::map<std::string, std::vector<float>> values_;
  std::vector<StoredTensor> tensors_;
};

/// The CPU with as much free memory as a test says.
class SmallDevice final : public Device {
 public:
  explicit SmallDevice(int64_t free_bytes) : free_bytes_(free_bytes) {}

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string description() const override { return "small"; }
  bool host_addressable() const override { return true; }
  Queue queue() override { return {}; }
  Result<std::byte*> allocate(int64_t /*bytes*/) override { return Error{"not reached"}; }
  void release(std::byte* /*memory*/) override {}
  int64_t allocated_bytes() const override { return 0; }
  int64_t free_bytes() const override { return free_bytes_; }
  void copy_in(std::byte* /*to*/, const std::byte* /*from*/, int64_t /*bytes*/) override {}
  void copy_out(std::byte* /*to*/, const std::byte* /*from*/, int64_t /*bytes*/) override {}
  void wait() override {}
  Result<std::byte*> allocate_host(int64_t /*bytes*/) override { return Error{"not reached"}; }
  void upload(std::byte* /*to*/, const std::byte* /*from*/, int64_t /*bytes*/) override {}
  QueueMark mark() override { return 0; }
  bool done(QueueMark /*mark*/) override { return true; }
  void wait_for(QueueMark /*mark*/) override {}
  std::unique_ptr<Captured> capture(const std::function<void(Queue)>& /*work*/) override { return nullptr; }

 private:
  int64_t free_bytes_;
};

std::string refusal(const Checkpoint& checkpoint) {
  const auto plan = plan_model(checkpoint, DeviceKind::cpu);
  return plan.ok() ? "no error" : plan.error().message;
}

/// The bytes of all packed weights.
std::vector<std::byte> packed(const Checkpoint& checkpoint, int threads) {
  const auto device = make_device(DeviceKind::cpu, {.threads = 1}).value();
  LoadOptions options;
  options.threads = threads;
  const auto model = load_model(checkpoint, *device, options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  const DeviceMemory& weights = model->weights;
  return {weights.data(), weights.data() + weights.bytes()};
}

TEST(Loader, PlansTheExactBytesAndReportsProgress) {
  const FakeCheckpoint checkpoint;
  const auto device = make_device(DeviceKind::cpu, {.threads = 1}).value();
  std::vector<double> seen;
  LoadOptions options;
  options.threads = 2;
  options.progress = [&](double part) { seen.push_back(part); };

  const auto plan = plan_model(checkpoint, DeviceKind::cpu);
  const auto model = load_model(checkpoint, *device, options);

  ASSERT_TRUE(plan.ok() && model.ok());
  EXPECT_EQ(plan->weight_bytes, model->weights.bytes());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 1.0);
  EXPECT_GE(seen.front(), 0.0);
}

// S9
TEST(Loader, S9AnyNumberOfThreadsPacksTheSameBytes) {
  const FakeCheckpoint checkpoint;

  EXPECT_EQ(packed(checkpoint, 1), packed(checkpoint, 3));
}

TEST(Loader, RotaryPairsBecomeHalves) {
  constexpr int head_dim = dim / heads;
  FakeCheckpoint plain;
  FakeCheckpoint paired;
  for (const std::string name : {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.bias"}) {
    const size_t cols = plain.values(name).size() / dim;
    for (size_t row = 0; row < dim; ++row) {
      const size_t i = row % head_dim;
      const size_t to = row - i + (i < head_dim / 2 ? 2 * i : 2 * (i - head_dim / 2) + 1);
      const auto from = plain.values(name).begin() + static_cast<std::ptrdiff_t>(row * cols);
      std::copy(from, from + static_cast<std::ptrdiff_t>(cols),
                paired.values(name).begin() + static_cast<std::ptrdiff_t>(to * cols));
    }
    paired.at(name).rope_heads = heads;
  }

  EXPECT_EQ(packed(plain, 1), packed(paired, 1));
}

TEST(Loader, TakesTheNamesOfModelsWithATextPart) {
  const FakeCheckpoint plain;
  FakeCheckpoint inside;
  inside.put_before_names("language_model.");

  EXPECT_EQ(packed(plain, 1), packed(inside, 1));
}

TEST(Loader, NamesATensorThatIsMissing) {
  FakeCheckpoint checkpoint;
  checkpoint.remove("model.layers.0.mlp.up_proj.weight");

  EXPECT_EQ(refusal(checkpoint), "fake: tensor \"model.layers.0.mlp.up_proj.weight\" is missing");
}

TEST(Loader, NamesATensorOfAnotherShape) {
  FakeCheckpoint checkpoint;
  checkpoint.at("model.norm.weight").shape = {dim + 1};

  EXPECT_EQ(refusal(checkpoint), "fake: tensor \"model.norm.weight\" is [129], expected [128]");
}

TEST(Loader, NamesATensorThatHasNoPlace) {
  FakeCheckpoint checkpoint;
  checkpoint.add("model.layers.0.mlp.up_proj.bias", {hidden});

  EXPECT_EQ(refusal(checkpoint),
            "fake: tensor \"model.layers.0.mlp.up_proj.bias\" has no place in a LlamaForCausalLM as its configuration "
            "describes it");
}

TEST(Loader, LeavesAsideWhatIsNotOfTheLayers) {
  FakeCheckpoint checkpoint;
  checkpoint.add("model.layers.0.self_attn.rotary_emb.inv_freq", {16});
  checkpoint.add("model.layers.1.embed_tokens.weight", {dim});  // a further layer, for drafting
  checkpoint.add("vision_tower.layers.0.weight", {dim});

  EXPECT_EQ(refusal(checkpoint), "no error");
}

TEST(Loader, NamesATypeThatIsNotKnown) {
  FakeCheckpoint checkpoint;
  checkpoint.at("model.layers.0.mlp.up_proj.weight").type = "Q8_K";

  EXPECT_NE(refusal(checkpoint).find("\"model.layers.0.mlp.up_proj.weight\" has type Q8_K"), std::string::npos)
      << refusal(checkpoint);
}

TEST(Loader, SaysHowMuchMemoryIsNeededBeforeItReadsAnything) {
  const FakeCheckpoint checkpoint;
  SmallDevice device(1 << 20);

  const auto model = load_model(checkpoint, device);

  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("fake: the weights take 1."), std::string::npos) << model.error().message;
  EXPECT_NE(model.error().message.find("MiB of memory, but only 1.0 MiB are free"), std::string::npos);
}

TEST(Loader, OverridesReplaceKeysOfTheConfiguration) {
  const FakeCheckpoint checkpoint;
  const Json overrides = Json::parse(R"({"max_position_embeddings": 4096, "rope_theta": 0})").value();

  const auto spec = read_spec(checkpoint, overrides);

  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().message, "fake: config: \"rope_theta\" must be above 1");
}

TEST(Loader, OverridesReachTheTextPart) {
  FakeCheckpoint checkpoint;
  checkpoint.put_config_into_text_part();

  const auto spec = read_spec(checkpoint, Json::parse(R"({"max_position_embeddings": 4096})").value());

  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->max_positions, 4096);
}

}  // namespace
}  // namespace quern
