#include "backend/cuda/linear_tiles.cuh"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "backend/cuda/boxes.h"

namespace quern::cuda {
namespace {

constexpr int most_shared = 216 << 10;  // small kernels find room beside

/// How a product is shared out.
struct Shape {
  int blocks = 0;
  int shared_bytes = 0;
  float nanoseconds = 0.0F;  // expected
};

/// Lays out a block's shared memory for job.cluster and job.height; false if too little is left for the ring.
template <int Tokens>
bool place(TilesJob& job, Shape& shape) {
  constexpr int x_bytes = TilesPlace<Tokens>::x_bytes;
  constexpr int x_ring_bytes = 64 << 10;
  constexpr int least_ring_bytes = 64 << 10;
  const int stage_bytes = job.height * slice_bytes;
  const int slices = (job.slices + job.cluster - 1) / job.cluster;
  job.row_units = job.height / 16;
  job.share_tiles = ((job.tokens + 7) / 8 + job.cluster - 1) / job.cluster;
  job.x_places = std::min({slices, std::max(4, x_ring_bytes / x_bytes), most_x_places});
  job.x_stays = job.x_places == slices;
  job.ring_at = job.x_places * x_bytes;
  const int sums_bytes = job.cluster > 1 ? job.cluster * job.share_tiles * job.row_units * sums_unit_bytes : 0;
  const int scales_bytes = (Tokens + 4 * most_tile_height) * 4;
  const int unused_rows = most_tile_height - job.height;  // which are read behind the last stage
  const int behind = std::max(sums_bytes + scales_bytes + tiles_barriers * 8, unused_rows * slice_bytes);
  const int ring_bytes = most_shared - job.ring_at - behind;
  job.stages = std::min(ring_bytes / stage_bytes, most_tiles_stages);
  job.sums_at = job.ring_at + job.stages * stage_bytes;
  job.scales_at = job.sums_at + sums_bytes;
  job.barriers_at = job.scales_at + scales_bytes;
  shape.shared_bytes = job.sums_at + behind;
  return ring_bytes >= least_ring_bytes;
}

template <typename Kernel>
int most_clusters(Kernel* kernel, int cluster) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(cluster);
  config.blockDim = tiles_threads;
  config.dynamicSmemBytes = most_shared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "clusters");
  return clusters;
}

/// How many clusters of so many blocks, each alone on its SM, are on the GPU at once.
using Clusters = std::array<int, most_tiles_cluster + 1>;

/// How long a product takes, in a form and with figures that were fitted to what many shapes took on an H200: as long
/// as memory, the cache all SMs read from, the busiest SM, or its matrix units need, and what tiles and their exchange
/// of sums begin and end with.
template <int Tokens>
float expected(const TilesJob& job, int blocks, int rounds) {
  constexpr float memory = 4300.0F;  // bytes in a nanosecond
  constexpr float cache = 9200.0F;
  constexpr float of_one = 93.0F;
  constexpr float exchange = 24.0F;
  constexpr float slice = 177.0F + 0.44F * Tokens;
  constexpr float tile_ends = 340.0F;
  constexpr float exchange_ends = 960.0F;
  const int slices = (job.slices + job.cluster - 1) / job.cluster * rounds;  // of a block
  const float weights = static_cast<float>(job.rows) * static_cast<float>(job.slices) * slice_bytes;
  const auto x_each = static_cast<float>((job.x_stays ? job.x_places : slices) * TilesPlace<Tokens>::x_bytes);
  const auto w_each = static_cast<float>(slices * job.height * slice_bytes);
  const float limits[] = {weights / memory, (weights + x_each * static_cast<float>(blocks)) / cache,
                          (x_each + w_each) / of_one, slice * static_cast<float>(slices)};
  const auto squared = [](float x) { return x * x; };
  const float largest = *std::max_element(std::begin(limits), std::end(limits));
  float together = 0.0F;  // a norm: near to the largest where that is far from the others
  for (const float limit : limits) together += squared(squared(squared(limit / largest)));
  float each = tile_ends;
  if (job.cluster > 1) {
    const auto sent = static_cast<float>((job.cluster - 1) * job.height * Tokens * 4) / static_cast<float>(job.cluster);
    each += exchange_ends + sent / exchange;
  }
  return largest * std::sqrt(std::sqrt(std::sqrt(together))) + each * static_cast<float>(rounds);
}

/// Chooses a cluster and the height of tiles.
template <int Tokens>
bool share_out(const Clusters& clusters, TilesJob& job, Shape& best) {
  constexpr int height_step = 16;
  const TilesJob all = job;
  for (int cluster = 1; cluster <= std::min(most_tiles_cluster, all.slices); ++cluster) {
    const int places = clusters[static_cast<size_t>(cluster)];
    if (places == 0) continue;
    for (int height = 2 * height_step; height <= most_tile_height; height += height_step) {
      TilesJob job_of = all;
      job_of.cluster = cluster;
      job_of.height = height;
      job_of.tiles = (all.rows + height - 1) / height;
      Shape shape;
      if (!place<Tokens>(job_of, shape)) continue;
      shape.blocks = std::min(job_of.tiles, places) * cluster;
      shape.nanoseconds = expected<Tokens>(job_of, shape.blocks, (job_of.tiles + places - 1) / places);
      if (best.blocks != 0 && shape.nanoseconds >= best.nanoseconds) continue;
      best = shape;
      job = job_of;
    }
  }
  return best.blocks != 0;
}

struct Call {
  const Queue& queue;
  const Product& product;
  std::byte* y;
  const std::byte* x;
  const std::byte* w;
};

template <typename Operand, typename T, int Tokens>
bool launch_tiles(const Call& call, const TilesJob& job, const Shape& shape) {
  static const bool allowed = allow_shared(multiply_tiles<Operand, T, Tokens>, most_shared);
  const Product& product = call.product;
  constexpr auto size = static_cast<int64_t>(sizeof(Operand));
  const int64_t row_bytes = product.cols * size;
  CUtensorMap w_map{};
  CUtensorMap x_map{};
  if (!allowed || !describe_rows(w_map, call.w, row_bytes, row_bytes, product.rows, slice_bytes, job.height))
    return false;
  if (!describe_rows(x_map, call.x, row_bytes, product.x_stride * size, product.tokens, slice_bytes, Tokens)) {
    return false;
  }
  launch_blocks(call.queue, multiply_tiles<Operand, T, Tokens>,
                {static_cast<unsigned>(shape.blocks), tiles_threads, static_cast<size_t>(shape.shared_bytes),
                 static_cast<unsigned>(job.cluster)},
                w_map, x_map, job);
  return true;
}

const Clusters& clusters_at_once() {
  static const Clusters clusters = [] {
    auto* const kernel = multiply_tiles<Bf16, Bf16, 128>;
    allow_shared(kernel, most_shared);
    Clusters most{};
    for (int cluster = 1; cluster <= most_tiles_cluster; ++cluster)
      most[static_cast<size_t>(cluster)] = most_clusters(kernel, cluster);
    return most;
  }();
  return clusters;
}

template <typename Operand, typename T, int Tokens>
bool run(const Call& call) {
  const Product& product = call.product;
  const int64_t row_bytes = int64_t{product.cols} * static_cast<int64_t>(sizeof(Operand));
  TilesJob job{};
  job.rows = product.rows;
  job.tokens = product.tokens;
  job.slices = static_cast<int32_t>((row_bytes + slice_bytes - 1) / slice_bytes);
  job.accumulate = product.accumulate;
  job.floats = product.result == Dtype::f32;
  job.y_stride = product.y_stride;
  job.y = call.y;
  job.x_scales = product.x_scales;
  job.w_scales = product.w_scales;
  job.bias = product.bias;
  Shape shape;
  if (!share_out<Tokens>(clusters_at_once(), job, shape)) return false;
  return launch_tiles<Operand, T, Tokens>(call, job, shape);
}

template <typename Operand, typename T>
bool run_some(const Call& call) {
  if (call.product.tokens <= 8) return run<Operand, T, 8>(call);
  if (call.product.tokens <= 16) return run<Operand, T, 16>(call);
  if (call.product.tokens <= 32) return run<Operand, T, 32>(call);
  if (call.product.tokens <= 64) return run<Operand, T, 64>(call);
  return run<Operand, T, 128>(call);
}

/// Whether the current GPU and driver can.
bool kernels_run() {
  static const bool run = runs_warpgroups() && describes_boxes();
  return run;
}

}  // namespace

int32_t most_tiles_tokens(Dtype type) {
  if (!kernels_run()) return 0;
  return type == Dtype::f8 ? 128 : 64;
}

bool takes_tiles(const Product& product, const std::byte* y, const std::byte* x, const std::byte* w) {
  const int64_t size = dtype_bytes(product.type);
  const auto begins_at = [](const void* data, uintptr_t bytes) {
    return reinterpret_cast<uintptr_t>(data) % bytes == 0;
  };
  const bool aligned =
      begins_at(x, 16) && begins_at(w, 16) && product.x_stride * size % 16 == 0 && product.cols * size % 16 == 0;
  const bool in_fours = begins_at(y, 8) && product.y_stride % 4 == 0 && product.rows % 4 == 0 && !product.accumulate;
  return aligned && (in_fours || product.result == Dtype::f32) && product.tokens <= most_tiles_tokens(product.type);
}

bool multiply_tiles(const Queue& queue, const Product& product, std::byte* y, const std::byte* x, const std::byte* w) {
  if (!takes_tiles(product, y, x, w)) return false;
  const Call call{queue, product, y, x, w};
  if (product.type == Dtype::f16) return run_some<Half, Half>(call);
  if (product.type == Dtype::bf16) return run_some<Bf16, Bf16>(call);
  return product.result == Dtype::f16 ? run_some<E4m3, Half>(call) : run_some<E4m3, Bf16>(call);
}

}  // namespace quern::cuda
