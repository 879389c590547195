// CHECK: for bugs, never for input. Prints file, line and text, then aborts.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace quern {

[[noreturn]] inline void check_failed(const char* file, int line, const char* text) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, text);
  std::abort();
}

}  // namespace quern

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) ::quern::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition) static_cast<void>(sizeof(!(condition)))
#else
#define DCHECK(condition) CHECK(condition)
#endif
