// Kernel: the slot of one operation: which function computes it on which device and instruction set.
#pragma once

#include <array>
#include <cstdint>

#include "base/check.h"
#include "ops/exec.h"
#include "tensor/queue.h"

namespace quern {

/// Instruction-set levels of the CPU, ascending. A kernel file compiled per level registers under its own.
enum class Isa : uint8_t { portable, avx2, avx512 };
inline constexpr int isa_levels = 3;

/// The level in force: the best this processor runs, or what QUERN_CPU_ISA / limit_isa() asks for if that is lower.
Isa isa_in_force();
/// Only before anything was packed or computed; returns false when the processor lacks that level.
bool limit_isa(Isa level);
const char* isa_name(Isa level);

template <typename Signature>
class Kernel;

/// Device functions get the queue first, then the operands.
template <typename... Args>
class Kernel<void(Args...)> {
 public:
  using Function = void (*)(Queue, Args...);

  explicit constexpr Kernel(const char* name) : name_(name) {}

  bool add(DeviceKind kind, Isa level, Function function) {
    functions_[static_cast<size_t>(kind)][static_cast<size_t>(level)] = function;
    return true;
  }
  bool add(DeviceKind kind, Function function) { return add(kind, Isa::portable, function); }

  bool available(DeviceKind kind) const { return functions_[static_cast<size_t>(kind)][0] != nullptr; }
  const char* name() const { return name_; }

  void operator()(Exec& exec, Args... args) const {
    if (exec.measure) return;
    if (exec.trace == nullptr) return find(exec.queue.kind)(exec.queue, args...);
    exec.trace->begin(name_);
    find(exec.queue.kind)(exec.queue, args...);
    exec.trace->end(name_);
  }

  /// The function in force, for what is no step of a run: sizes, packing.
  Function find(DeviceKind kind) const {
    const auto& levels = functions_[static_cast<size_t>(kind)];
    int level = kind == DeviceKind::cpu ? static_cast<int>(isa_in_force()) : 0;
    while (level > 0 && levels[static_cast<size_t>(level)] == nullptr) --level;
    CHECK(levels[static_cast<size_t>(level)] != nullptr);
    return levels[static_cast<size_t>(level)];
  }

 private:
  const char* name_;
  std::array<std::array<Function, isa_levels>, device_kinds> functions_{};
};

}  // namespace quern
