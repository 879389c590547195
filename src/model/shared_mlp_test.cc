// Granite with experts and a part that all tokens share. transformers is no witness for it, but dense Granite is: one
// expert that has two thirds of an ffn and a shared part that has the rest make the same sum.
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <numeric>
#include <string>

#include "apps/loader.h"
#include "checkpoint/testing.h"
#include "model/testing.h"

namespace quern {
namespace {

constexpr int64_t of_expert = 32;  // of the ffn's 48
constexpr size_t value_bytes = 2;  // bfloat16

/// A safetensors file, tensor by tensor.
class Tensors {
 public:
  void add(const std::string& name, std::span<const int64_t> shape, std::string_view data) {
    header_ +=
        fmt::format(R"({}"{}":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}})", header_.empty() ? "" : ",",
                    name, fmt::join(shape, ","), data_.size(), data_.size() + data.size());
    data_ += data;
  }
  std::string file() const { return testing::safetensors("{" + header_ + "}", data_); }

 private:
  std::string header_, data_;
};

std::string_view text_of(const StoredTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

/// Columns [first, last) of a matrix.
std::string columns(const StoredTensor& matrix, int64_t first, int64_t last) {
  const auto row_bytes = static_cast<size_t>(matrix.shape[1]) * value_bytes;
  std::string out;
  for (size_t row = 0; row < static_cast<size_t>(matrix.shape[0]); ++row) {
    out += text_of(matrix).substr(row * row_bytes + static_cast<size_t>(first) * value_bytes,
                                  static_cast<size_t>(last - first) * value_bytes);
  }
  return out;
}

/// The ffn of layer `prefix` as an expert and a shared part.
void add_split_ffn(const Checkpoint& dense, const std::string& prefix, Tensors& out) {
  const StoredTensor& gate = *dense.find(prefix + "mlp.gate_proj.weight");
  const StoredTensor& up = *dense.find(prefix + "mlp.up_proj.weight");
  const StoredTensor& down = *dense.find(prefix + "mlp.down_proj.weight");
  const int64_t hidden = gate.shape[0];
  const int64_t dim = gate.shape[1];
  const auto cut = static_cast<size_t>(of_expert * dim) * value_bytes;
  const auto both = [&](size_t first, size_t count) {
    return std::string(text_of(gate).substr(first, count)) + std::string(text_of(up).substr(first, count));
  };
  using Shape = std::vector<int64_t>;
  const std::string experts = prefix + "block_sparse_moe.";
  const std::string shared = prefix + "shared_mlp.";
  out.add(experts + "router.layer.weight", Shape{1, dim}, std::string(static_cast<size_t>(dim) * value_bytes, '\0'));
  out.add(experts + "input_linear.weight", Shape{1, 2 * of_expert, dim}, both(0, cut));
  out.add(experts + "output_linear.weight", Shape{1, dim, of_expert}, columns(down, 0, of_expert));
  out.add(shared + "input_linear.weight", Shape{2 * (hidden - of_expert), dim}, both(cut, std::string::npos));
  out.add(shared + "output_linear.weight", Shape{dim, hidden - of_expert}, columns(down, of_expert, hidden));
}

std::string split_model(const Checkpoint& dense) {
  Tensors out;
  for (const StoredTensor& tensor : dense.tensors()) {
    if (tensor.name.find(".mlp.") == std::string::npos) out.add(tensor.name, tensor.shape, text_of(tensor));
  }
  for (int layer = 0; layer < dense.config().integer("num_hidden_layers"); ++layer) {
    add_split_ffn(dense, fmt::format("model.layers.{}.", layer), out);
  }
  return out.file();
}

std::vector<std::vector<float>> logits_of(const Checkpoint& checkpoint) {
  const auto device = make_device(DeviceKind::cpu, {.threads = 1}).value();
  const auto model = load_model(checkpoint, *device);
  EXPECT_TRUE(model.ok()) << model.error().message;
  testing::Sequences sequences(*device, model->spec, model->decoder, 1, 64, Dtype::f32);
  testing::StepPart text{0, std::vector<int32_t>(20), std::vector<int>(20)};
  for (int i = 0; i < 20; ++i) text.tokens[static_cast<size_t>(i)] = (7 * i * i + 3) % model->spec.vocab;
  std::iota(text.outputs.begin(), text.outputs.end(), 0);
  return sequences.step(text);
}

TEST(GraniteMoeShared, ASharedPartIsAddedToTheExperts) {
  const auto dense = Checkpoint::open(QUERN_SOURCE_DIR "/tests/golden/granite").value();
  const int64_t hidden = dense->config().integer("intermediate_size").value();
  const testing::Folder folder;
  Json config = dense->config();
  config.set("architectures", Json::parse(R"(["GraniteMoeSharedForCausalLM"])").value());
  config.set("intermediate_size", of_expert).set("shared_intermediate_size", hidden - of_expert);
  config.set("num_local_experts", int64_t{1}).set("num_experts_per_tok", int64_t{1});
  folder.write("config.json", config.dump());
  folder.write("model.safetensors", split_model(*dense));
  const auto split = Checkpoint::open(folder.path());
  ASSERT_TRUE(split.ok()) << split.error().message;

  const auto wanted = logits_of(*dense);
  const auto actual = logits_of(**split);

  ASSERT_EQ(actual.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (size_t v = 0; v < wanted[i].size(); ++v) ASSERT_NEAR(actual[i][v], wanted[i][v], 1e-4F) << i << " " << v;
  }
}

}  // namespace
}  // namespace quern
