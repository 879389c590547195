// How fast weights of every GGUF type are loaded, page cache warm, converting and packing included, and how much memory
// that takes above the result. The file is made here: one matrix of random blocks. `load_bench TYPE...` measures some.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "apps/weight_store.h"
#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/gguf_types.h"
#include "tensor/device.h"

namespace quern {
namespace {

constexpr int cols = 4096;
constexpr int64_t file_bytes = int64_t{256} << 20;
constexpr const char* tensor_name = "token_embd.weight";

template <typename T>
void put(std::ofstream& out, T value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_string(std::ofstream& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
}
void put_key(std::ofstream& out, std::string_view key, uint32_t type) {
  put_string(out, key);
  put(out, type);
}

/// A llama of no layers that matter: its embedding has `rows` rows.
void write_model(const std::string& path, const GgufTensorType& type, int rows) {
  std::ofstream out(path, std::ios::binary);
  out << "GGUF";
  put(out, uint32_t{3});
  put(out, uint64_t{1});
  put(out, uint64_t{8});
  put_key(out, "general.architecture", 8);
  put_string(out, "llama");
  const std::pair<const char*, uint32_t> counts[] = {{"block_count", 1},           {"embedding_length", cols},
                                                     {"context_length", 64},       {"feed_forward_length", 64},
                                                     {"attention.head_count", 32}, {"attention.head_count_kv", 32}};
  for (const auto& [key, value] : counts) {
    put_key(out, fmt::format("llama.{}", key), 4);
    put(out, value);
  }
  put_key(out, "llama.attention.layer_norm_rms_epsilon", 6);
  put(out, 1e-5F);
  put_string(out, tensor_name);
  put(out, uint32_t{2});
  put(out, uint64_t{cols});
  put(out, static_cast<uint64_t>(rows));
  put(out, type.id);
  put(out, uint64_t{0});
  while (out.tellp() % 32 != 0) out.put('\0');
  std::mt19937_64 random(7);
  std::vector<uint64_t> some(1 << 17);
  for (uint64_t& word : some) word = random() & 0xBFFFBFFFBFFFBFFFU;
  for (int64_t left = rows * (cols / type.block_values * type.block_bytes); left > 0;) {
    const int64_t count = std::min<int64_t>(left, static_cast<int64_t>(some.size() * sizeof some[0]));
    out.write(reinterpret_cast<const char*>(some.data()), count);
    left -= count;
  }
}

/// A line of /proc/self/status, in bytes.
int64_t status_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  }
  return 0;
}

struct Measured {
  double seconds = 0;
  int64_t stored_bytes = 0;
  int64_t above_bytes = 0;  // of memory, at the most, above the result's
};

Measured load_once(const std::string& path, int rows, int threads) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the high water mark begins anew
  const int64_t before = status_bytes("VmRSS");
  const auto start = std::chrono::steady_clock::now();
  const auto checkpoint = Checkpoint::open(path).value();
  const auto device = make_device(DeviceKind::cpu, {.threads = threads}).value();
  WeightStore plan(*checkpoint, DeviceKind::cpu, nullptr);
  CHECK(plan.weight("model.embed_tokens.weight", rows, cols).ok());
  std::byte* const memory = device->allocate(plan.bytes()).value();
  WeightStore store(*checkpoint, DeviceKind::cpu, memory);
  CHECK(store.weight("model.embed_tokens.weight", rows, cols).ok());
  store.fill(*device, threads, nullptr);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  Measured measured{taken.count(), static_cast<int64_t>(checkpoint->tensors()[0].bytes.size()),
                    status_bytes("VmHWM") - before - plan.bytes()};
  device->release(memory);
  return measured;
}

void measure(const GgufTensorType& type, int threads) {
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("quern-load-{}.gguf", ::getpid());
  const int64_t row_bytes = cols / type.block_values * type.block_bytes;
  const int rows = static_cast<int>(file_bytes / row_bytes);
  write_model(path, type, rows);
  load_once(path, rows, threads);  // warms the page cache
  Measured best = load_once(path, rows, threads);
  for (int i = 0; i < 4; ++i) {
    const Measured again = load_once(path, rows, threads);
    if (again.seconds < best.seconds) best.seconds = again.seconds;
    if (again.above_bytes > best.above_bytes) best.above_bytes = again.above_bytes;
  }
  std::filesystem::remove(path);
  fmt::print("loading {}, page cache warm, {} threads: {:.2f} GB/s (must >= 1.5 GB/s, aim 3 GB/s)\n", type.name,
             threads, static_cast<double>(best.stored_bytes) / best.seconds / 1e9);
  fmt::print("  memory above the result, at the most: {:.0f} MB (must <= 300 MB, aim 150 MB)\n",
             static_cast<double>(best.above_bytes) / 1e6);
  std::fflush(stdout);
}

}  // namespace
}  // namespace quern

int main(int argc, char** argv) {
  const std::vector<std::string_view> wanted(argv + 1, argv + argc);
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (uint32_t id = 0; id < 64; ++id) {
    const quern::GgufTensorType* const type = quern::find_gguf_type(id);
    if (type == nullptr || quern::find_scheme(type->name) == nullptr) continue;
    const bool asked = wanted.empty() || std::find(wanted.begin(), wanted.end(), type->name) != wanted.end();
    if (asked) quern::measure(*type, threads);
  }
}
