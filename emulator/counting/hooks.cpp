// The functions that code compiled with -fsanitize=thread calls before its memory accesses. ThreadSanitizer's
// library defines them otherwise; here they count. Programs that link this file have kernels that were compiled
// so (convoy_counted_kernels in kernels/CMakeLists.txt).
#include <cstddef>

#include "emulator/counting/access_counter.h"

namespace {

using convoy::emulator::AccessCounter;

void count(const void* address, std::size_t bytes, bool is_store, const void* next) {
  if (AccessCounter* const counter = AccessCounter::current())
    counter->access(address, bytes, is_store, static_cast<const char*>(next) - 1);
}

[[maybe_unused]] const bool is_linked = AccessCounter::is_available = true;

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the names are those that the compiler calls.
#define CONVOY_HOOKS(bytes)                                                                             \
  void __tsan_read##bytes(void* address) { count(address, bytes, false, __builtin_return_address(0)); } \
  void __tsan_write##bytes(void* address) { count(address, bytes, true, __builtin_return_address(0)); } \
  void __tsan_unaligned_read##bytes(void* address) {                                                    \
    count(address, bytes, false, __builtin_return_address(0));                                          \
  }                                                                                                     \
  void __tsan_unaligned_write##bytes(void* address) {                                                   \
    count(address, bytes, true, __builtin_return_address(0));                                           \
  }

extern "C" {
CONVOY_HOOKS(1)
CONVOY_HOOKS(2)
CONVOY_HOOKS(4)
CONVOY_HOOKS(8)
CONVOY_HOOKS(16)
void __tsan_read_range(void* address, std::size_t bytes) {
  count(address, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* address, std::size_t bytes) {
  count(address, bytes, true, __builtin_return_address(0));
}
void __tsan_vptr_update(void** /*object*/, void* /*table*/) {}
void __tsan_vptr_read(void** /*object*/) {}
void __tsan_init() {}
}
// NOLINTEND(bugprone-reserved-identifier)
