// Hashes for the tokenizer's own tables. Seeded once per process, so that a file cannot be made to collide.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace quern {

inline const uint64_t hash_seed = (uint64_t{std::random_device{}()} << 32 | std::random_device{}()) | 1;

inline uint64_t hash_mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_number(uint64_t value) { return hash_mix(value ^ hash_seed, 0x9E3779B97F4A7C15U); }

inline uint64_t hash_bytes(std::string_view bytes) {
  const auto read = [](const char* at, size_t count) {
    uint64_t word = 0;
    std::memcpy(&word, at, count);
    return word;
  };
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t hash = hash_seed ^ bytes.size();
  for (; left > 8; at += 8, left -= 8) hash = hash_mix(hash ^ read(at, 8), 0xD6E8FEB86659FD93U);
  if (left == 8) return hash_mix(hash ^ read(at, 8), 0x9E3779B97F4A7C15U);
  uint64_t tail = 0;
  if (left >= 4) {
    tail = read(at, 4) | read(at + left - 4, 4) << 32;
  } else if (left > 0) {
    const auto byte = [at](size_t i) { return uint64_t{static_cast<unsigned char>(at[i])}; };
    tail = byte(0) | byte(left / 2) << 8 | byte(left - 1) << 16;
  }
  return hash_mix(hash ^ tail, 0x9E3779B97F4A7C15U);
}

}  // namespace quern
