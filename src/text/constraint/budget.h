// AllocationBudget: bounds the memory and processor time of what its thread does, for code that knows no bounds itself.
#pragma once

#include <cstdint>

namespace quern {

/// While one exists, its thread may hold so many bytes more than at the start and use so much processor time; beyond it
/// operator new throws std::bad_alloc (it is replaced for the whole program). What was exceeded is told by spent().
/// One at a time on a thread.
class AllocationBudget {
 public:
  enum class Spent : uint8_t { nothing, bytes, time };

  AllocationBudget(int64_t bytes, double cpu_s);
  ~AllocationBudget();
  AllocationBudget(const AllocationBudget&) = delete;
  AllocationBudget& operator=(const AllocationBudget&) = delete;

  Spent spent() const;
};

}  // namespace quern
