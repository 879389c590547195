#include "model/spec.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <utility>

namespace quern {
namespace {

/// `layers` layers of which every `period`-th is full and the others have a window.
DecoderSpec striped(int layers, int period, int window) {
  DecoderSpec spec;
  for (int i = 0; i < layers; ++i) {
    AttentionSpec attention;
    attention.heads = 8;
    attention.kv_heads = 2;
    attention.head_dim = 32;
    attention.window = (i + 1) % period == 0 ? 0 : window;
    spec.layers.push_back({attention, FfnSpec{}, {}});
  }
  return spec;
}

/// Every layer has a place of its own inside the page, in a group of its own kind.
void expect_sound(const DecoderSpec& spec, const KvLayout& layout) {
  std::set<std::pair<int, int64_t>> places;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const KvLayout::Place place = layout.layers[i];
    const KvGroup& group = layout.groups[static_cast<size_t>(place.group)];
    EXPECT_EQ(group.window, std::get<AttentionSpec>(spec.layers[i].mixer).window);
    EXPECT_TRUE(std::count(group.layers.begin(), group.layers.end(), static_cast<int>(i)) == 1);
    EXPECT_LE(place.offset + group.layer_bytes, layout.page_bytes);
    EXPECT_EQ(place.offset % group.layer_bytes, 0);
    EXPECT_TRUE(places.emplace(place.group, place.offset).second);
  }
}

TEST(KvLayout, OneKindIsOneGroup) {
  const DecoderSpec spec = striped(30, 1, 0);

  const KvLayout layout = kv_layout(spec, 2);

  expect_sound(spec, layout);
  EXPECT_EQ(layout.groups.size(), 1U);
  EXPECT_EQ(layout.page_bytes, int64_t{30} * 2 * 2 * 16 * 32 * 2);
}

TEST(KvLayout, GroupsAreAsLargeAsTheSmallestKind) {
  const DecoderSpec spec = striped(18, 6, 512);  // Gemma 3 270M: 3 full, 15 with a window

  const KvLayout layout = kv_layout(spec, 2);

  expect_sound(spec, layout);
  ASSERT_EQ(layout.groups.size(), 6U);
  EXPECT_EQ(layout.groups[0].window, 0);
  EXPECT_EQ(layout.groups[0].layers, (std::vector<int>{5, 11, 17}));
  EXPECT_EQ(layout.page_bytes, 3 * layout.groups[0].layer_bytes);
}

TEST(KvLayout, LessThanOnePlaceIn25IsLeftEmpty) {
  for (const int layers : {26, 34, 48, 62}) {  // Gemma 3 1B, 4B, 12B, 27B
    const DecoderSpec spec = striped(layers, 6, 1024);

    const KvLayout layout = kv_layout(spec, 2);

    expect_sound(spec, layout);
    const auto places = static_cast<int64_t>(layout.groups.size()) * layout.page_bytes / layout.groups[0].layer_bytes;
    EXPECT_LE((places - layers) * 25, layers) << layers;
  }
}

TEST(KvLayout, LayersThatShareKeysTakeNoMemory) {
  DecoderSpec spec = striped(35, 5, 512);  // Gemma 4 E2B: the last 20 attend to the keys of layers 13 and 14
  DecoderSpec owners = spec;
  owners.layers.resize(15);
  for (size_t i = 15; i < spec.layers.size(); ++i) {
    const auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    SharedAttentionSpec shared;
    shared.layer = attention.window > 0 ? 13 : 14;
    shared.heads = attention.heads;
    shared.kv_heads = attention.kv_heads;
    shared.head_dim = attention.head_dim;
    shared.window = attention.window;
    spec.layers[i].mixer = shared;
  }

  const KvLayout layout = kv_layout(spec, 2);

  const KvLayout of_owners = kv_layout(owners, 2);
  EXPECT_EQ(layout.page_bytes, of_owners.page_bytes);
  EXPECT_EQ(layout.state_bytes, 0);
  ASSERT_EQ(layout.groups.size(), of_owners.groups.size());
  for (size_t g = 0; g < layout.groups.size(); ++g) EXPECT_EQ(layout.groups[g].layers, of_owners.groups[g].layers);
}

TEST(KvLayout, LatentsTakeOneRankAndOneRotatedKeyForEachToken) {
  MlaSpec mla;  // DeepSeek V3
  mla.heads = 128;
  mla.kv_rank = 512;
  mla.rope.dims = 64;
  DecoderSpec spec;
  spec.layers.assign(61, {mla, FfnSpec{}, {}});

  const KvLayout layout = kv_layout(spec, 2);

  ASSERT_EQ(layout.groups.size(), 1U);
  EXPECT_EQ(layout.page_bytes / layout.page_tokens, 61 * (512 + 64) * 2);
}

}  // namespace
}  // namespace quern
