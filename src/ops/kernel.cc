#include "ops/kernel.h"

#include <cstdlib>
#include <string_view>

namespace quern {
namespace {

constexpr const char* names[isa_levels] = {"portable", "avx2", "avx512"};

Isa best_of_processor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512vnni")) return Isa::avx512;
  if (__builtin_cpu_supports("x86-64-v3")) return Isa::avx2;
#endif
  return Isa::portable;
}

Isa from_environment() {
  const char* wanted = std::getenv("QUERN_CPU_ISA");
  const Isa best = best_of_processor();
  if (wanted == nullptr) return best;
  for (int level = 0; level < isa_levels; ++level) {
    if (std::string_view(wanted) == names[level] && level <= static_cast<int>(best)) return static_cast<Isa>(level);
  }
  return best;
}

Isa& in_force() {
  static Isa level = from_environment();
  return level;
}

}  // namespace

Isa isa_in_force() { return in_force(); }

bool limit_isa(Isa level) {
  if (static_cast<int>(level) > static_cast<int>(best_of_processor())) return false;
  in_force() = level;
  return true;
}

const char* isa_name(Isa level) { return names[static_cast<int>(level)]; }

}  // namespace quern
