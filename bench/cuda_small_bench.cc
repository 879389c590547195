// How fast the operations around the products are on a GPU: sampling, routed experts, norms, rotation, gates. Time of
// one launch among many in a captured graph. Usage: cuda_small_bench [between] [experts] [sampling]
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "formats/list.h"
#include "ops/gated.h"
#include "ops/moe.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rope_and_write_kv.h"
#include "ops/sample.h"
#include "tensor/device.h"

namespace quern {
namespace {

constexpr int64_t arena_bytes = int64_t{6} << 30;
constexpr int64_t weight_bytes = int64_t{5} << 30;
constexpr int64_t host_bytes = int64_t{16} << 20;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Bench {
 public:
  explicit Bench(Device& device)
      : device_(device),
        memory_(device.allocate(arena_bytes).value()),
        weights_(device.allocate(weight_bytes).value()),
        host_(device.allocate_host(host_bytes).value()),
        arena_(memory_, arena_bytes) {
    fmt::print("{}\n", device.description());
  }
  ~Bench() {
    for (std::byte* const memory : {memory_, weights_, host_}) device_.release(memory);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// A vocabulary of 151,936 tokens.
  void sampling() {
    constexpr int32_t vocab = 151936;
    struct Kind {
      std::string_view name;
      SampleRow row;
    };
    const Kind kinds[] = {{"greedy", {.temperature = 0.0F}},
                          {"temperature", {}},
                          {"top_k 50", {.top_k = 50}},
                          {"top_p 0.9", {.top_p = 0.9F}},
                          {"logprobs 20", {.temperature = 0.0F, .logprobs = 20}}};
    const Tensor logits = normal(Dtype::f32, 256, vocab, 3.0F);
    auto* const rows = reinterpret_cast<SampleRow*>(host_);
    auto* const results = reinterpret_cast<Sampled*>(host_ + host_bytes / 2);
    for (const Kind& kind : kinds) {
      for (size_t i = 0; i < 256; ++i) {
        rows[i] = kind.row;
        rows[i].seed = i;
      }
      for (const int32_t count : {1, 64, 256}) {
        const auto size = static_cast<size_t>(count);
        report(fmt::format("sample {}", kind.name), count, 20, 4.0 * count * vocab, 0, [&](Exec& exec) {
          sample(exec, logits.rows(0, count), std::span(rows, size), std::span(results, size));
        });
      }
    }
  }

  /// 128 experts of which 8 are used, as in a model of 30 billion parameters.
  void experts(FormatId format) {
    constexpr int32_t count = 128;
    constexpr int32_t used = 8;
    constexpr int32_t dim = 2048;
    constexpr int32_t hidden = 768;
    const int64_t gate_bytes = packed_bytes(DeviceKind::cuda, format, hidden, dim);
    const int64_t down_bytes = packed_bytes(DeviceKind::cuda, format, dim, hidden);
    const int64_t layer_bytes = count * (2 * gate_bytes + down_bytes);
    const auto layers = static_cast<int>(std::min<int64_t>(weight_bytes / layer_bytes, 4));
    fill(format, weights_, layers * layer_bytes);
    std::vector<std::vector<Matrix>> gate_up(static_cast<size_t>(layers));
    std::vector<std::vector<Matrix>> down(static_cast<size_t>(layers));
    for (int layer = 0; layer < layers; ++layer) {
      for (int e = 0; e < count; ++e) {
        std::byte* const at = weights_ + layer * layer_bytes + e * (2 * gate_bytes + down_bytes);
        gate_up[static_cast<size_t>(layer)].push_back(matrix_of(format, {at, at + gate_bytes}, hidden, dim));
        down[static_cast<size_t>(layer)].push_back(matrix_of(format, {at + 2 * gate_bytes}, dim, hidden));
      }
    }
    for (const int32_t tokens : {1, 8, 64, 256, 2048, 8192}) {
      const Arena::Scope scope(arena_);
      const Tensor scores = normal(Dtype::f32, tokens, count, 1.0F);
      const Tensor x = normal(Dtype::bf16, tokens, dim, 1.0F);
      const Tensor y = normal(Dtype::f32, tokens, dim, 1.0F);
      const int with_pairs = std::min(count, tokens * used);
      const double bytes = static_cast<double>(with_pairs) * static_cast<double>(2 * gate_bytes + down_bytes);
      int step = 0;
      report(fmt::format("experts {}", format_info(format).name), tokens, 4 * layers, bytes,
             6.0 * tokens * used * hidden * dim, [&](Exec& exec) {
               const auto layer = static_cast<size_t>(step++ % layers);
               const Routing routing = route(exec, scores, {.used = used, .renormalize = true});
               const Tensor products =
                   expert_gated(exec, x, gate_up[layer].data(), routing, Activation::silu, down[layer].data());
               combine(exec, y, expert_linear(exec, products, down[layer].data(), routing), routing, true);
             });
    }
  }

  /// What lies between the products of a model of 8 billion parameters.
  void between() {
    for (const int32_t tokens : {1, 64, 256, 8192}) {
      const Arena::Scope scope(arena_);
      const Tensor stream = normal(Dtype::f32, tokens, 4096, 1.0F);
      const Tensor norm = normal(Dtype::f32, 1, 4096, 1.0F);
      Tensor weights = norm;
      weights.rank = 1;
      weights.dims[0] = 4096;
      report("rms_norm", tokens, 20, 6.0 * tokens * 4096, 0,
             [&](Exec& exec) { rms_norm(exec, stream, weights, 1e-5F); });
      const Tensor gates = normal(Dtype::bf16, tokens, 28672, 1.0F);
      report("gated", tokens, 20, 6.0 * tokens * 14336, 0, [&](Exec& exec) { gated(exec, gates, Activation::silu); });
      rotation(tokens);
    }
  }

 private:
  void rotation(int32_t tokens) {
    const Tensor qkv = normal(Dtype::bf16, tokens, 6144, 1.0F);
    const int32_t pages = (tokens + 15) / 16;
    std::vector<int32_t> numbers(static_cast<size_t>(tokens));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
    const Tensor positions = upload(numbers, tokens);
    PagedKv kv;
    kv.table = Tensor::dense(positions.data, Dtype::i32, 1, pages);
    kv.page_bytes = int64_t{2} * 8 * 16 * 128 * 2;
    kv.pool = arena_.take(pages * kv.page_bytes);
    kv.heads = 8;
    kv.head_dim = 128;
    kv.dtype = Dtype::bf16;
    const std::vector<int32_t> zero_and_all{0, tokens};
    const Tensor starts = upload(zero_and_all, 2);
    const Segments segments{starts, Tensor::dense(starts.data, Dtype::i32, 1), positions};
    Exec exec = exec_in(device_.queue());
    const Tensor frequencies = normal(Dtype::f32, 1, 64, 1.0F);
    Tensor inverse = frequencies;
    inverse.rank = 1;
    inverse.dims[0] = 64;
    HeadTransform transform;
    transform.table = rope_table(exec, positions, inverse, 1.0F);
    report("rope_and_write_kv", tokens, 20, 4.0 * tokens * 6144, 0, [&](Exec& inside) {
      rope_and_write_kv(inside, qkv.columns(0, 4096), qkv.columns(4096, 1024), qkv.columns(5120, 1024), transform, kv,
                        segments);
    });
  }

  Exec exec_in(Queue queue) {
    Exec exec{queue, arena_};
    exec.activations = Dtype::bf16;
    return exec;
  }

  Tensor upload(const std::vector<int32_t>& values, int32_t count) {
    const Tensor to = arena_.tensor(Dtype::i32, count);
    device_.upload(to.data, reinterpret_cast<const std::byte*>(values.data()), int64_t{count} * 4);
    return to;
  }

  /// Random values, of which some rows are repeated.
  Tensor normal(Dtype type, int32_t rows, int32_t cols, float spread) {
    const Tensor to = arena_.tensor(type, rows, cols);
    const FormatId format = type == Dtype::f32 ? FormatId::f32 : FormatId::bf16;
    const int64_t bytes = int64_t{rows} * cols * dtype_bytes(type);
    repeat(to.data, bytes, pattern(format, std::min<int64_t>(int64_t{rows} * cols, 1 << 20) / 8 * 8, spread));
    return to;
  }

  static std::vector<std::byte> pattern(FormatId format, int64_t count, float spread) {
    const FormatSizes sizes = format_info(format);
    std::vector<std::byte> data(static_cast<size_t>(count / sizes.group * sizes.data_bytes));
    std::vector<float> values(static_cast<size_t>(sizes.group));
    std::mt19937 random(1);
    std::normal_distribution<float> distribution(0.0F, spread);
    visit_format(format, [&]<typename Format>(Format) {
      for (int64_t group = 0; group < count / Format::group; ++group) {
        for (float& value : values) value = distribution(random);
        Format::encode(values.data(), data.data() + group * Format::data_bytes, nullptr);
      }
    });
    return data;
  }

  /// Packed rows of random values; all sizes here are multiples of theirs.
  void fill(FormatId format, std::byte* to, int64_t bytes) {
    constexpr int32_t rows = 64;
    constexpr int32_t cols = 2048;
    const FormatSizes sizes = format_info(format);
    const auto groups = static_cast<size_t>(rows * cols / sizes.group);
    std::vector<std::byte> data(groups * static_cast<size_t>(sizes.data_bytes));
    std::vector<std::byte> scales(groups * static_cast<size_t>(sizes.scale_bytes));
    std::vector<float> values(static_cast<size_t>(sizes.group));
    std::mt19937 random(2);
    std::normal_distribution<float> distribution(0.0F, 0.02F);
    visit_format(format, [&]<typename Format>(Format) {
      for (size_t group = 0; group < groups; ++group) {
        for (float& value : values) value = distribution(random);
        Format::encode(values.data(), data.data() + group * Format::data_bytes,
                       scales.data() + group * Format::scale_bytes);
      }
    });
    std::vector<std::byte> packed(static_cast<size_t>(packed_bytes(DeviceKind::cuda, format, rows, cols)));
    pack_panels(DeviceKind::cuda, packed.data(), {format, Layout::rows, rows, cols, data.data(), scales.data()}, 0,
                rows);
    repeat(to, bytes, packed);
  }

  void repeat(std::byte* to, int64_t bytes, const std::vector<std::byte>& values) {
    const auto size = static_cast<int64_t>(values.size());
    for (int64_t at = 0; at < bytes; at += size) device_.upload(to + at, values.data(), std::min(size, bytes - at));
  }

  static Matrix matrix_of(FormatId format, std::initializer_list<std::byte*> parts, int32_t rows, int32_t cols) {
    Matrix matrix;
    for (std::byte* const data : parts) {
      matrix.parts[matrix.count++] = {format, Layout::packed, rows, cols, data, nullptr};
      matrix.rows += rows;
    }
    matrix.cols = cols;
    return matrix;
  }

  /// Time of one of `launches`, with bytes and operations of each by it.
  void report(const std::string& name, int32_t tokens, int launches, double bytes, double operations,
              const std::function<void(Exec&)>& work) {
    const auto all = [&](Queue queue) {
      for (int i = 0; i < launches; ++i) {
        const Arena::Scope scope(arena_);
        Exec exec = exec_in(queue);
        work(exec);
      }
    };
    all(device_.queue());
    device_.wait();
    const auto graph = device_.capture(all);
    double best = 1e9;
    for (int round = 0; round < 4; ++round) {
      const double begin = seconds_now();
      graph->launch();
      device_.wait();
      best = std::min(best, (seconds_now() - begin) / launches);
    }
    fmt::print("{:<24}{:>6}{:>10.1f} us{:>8.2f} TB/s", name, tokens, best * 1e6, bytes / best / 1e12);
    if (operations > 0) fmt::print("{:>8.1f} TFLOP/s", operations / best / 1e12);
    fmt::print("\n");
  }

  Device& device_;
  std::byte* memory_;
  std::byte* weights_;
  std::byte* host_;
  Arena arena_;
};

bool run(const std::vector<std::string_view>& words) {
  const auto made = make_device(DeviceKind::cuda, {.batch_invariant = false});
  if (!made) {
    fmt::print(stderr, "{}\n", made.error().message);
    return false;
  }
  Bench bench(**made);
  const auto wanted = [&](std::string_view word) {
    return words.empty() || std::find(words.begin(), words.end(), word) != words.end();
  };
  if (wanted("between")) bench.between();
  if (wanted("experts")) bench.experts(FormatId::bf16);
  if (wanted("experts")) bench.experts(FormatId::q4_0);
  if (wanted("sampling")) bench.sampling();
  return true;
}

}  // namespace
}  // namespace quern

int main(int argc, char** argv) { return quern::run({argv + 1, argv + argc}) ? 0 : 1; }
