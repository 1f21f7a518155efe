// The functions that code compiled with -fsanitize=thread calls before its memory accesses. ThreadSanitizer's
// library defines them otherwise; here they count and check. Programs that link this file have kernels that
// were compiled so (CUEMU_COUNTING_OPTIONS in emulator/CMakeLists.txt).
#include <cstddef>
#include <cstdint>

#include "emulator/checking/access_checker.h"
#include "emulator/checking/own_code.h"

namespace {

using convoy::emulator::AccessCounter;
using convoy::emulator::AccessKind;

void count(const void* address, std::size_t bytes, AccessKind kind, const void* next) {
  if (convoy::emulator::OwnCode::is_running()) return;
  const convoy::emulator::OwnCode scope;
  convoy::emulator::observe(address, bytes, kind, static_cast<const char*>(next) - 1);
}

/// The same, of an access that needs an address which is a multiple of its size.
void count_aligned(const void* address, std::size_t bytes, AccessKind kind, const void* next) {
  if (convoy::emulator::OwnCode::is_running()) return;
  if (auto* const checker = convoy::emulator::AccessChecker::current()) {
    const convoy::emulator::OwnCode scope;
    checker->check_aligned(address, bytes, kind, static_cast<const char*>(next) - 1);
  }
  count(address, bytes, kind, next);
}

/// Before the constructors of other sources, which may already use the emulator.
[[gnu::constructor(101)]] void link() { AccessCounter::is_available = true; }

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the names are those that the compiler calls.
#define CUEMU_HOOK(function, name, bytes, kind) \
  void name(void* address) { function(address, bytes, AccessKind::kind, __builtin_return_address(0)); }
#define CUEMU_HOOKS(bytes)                                       \
  CUEMU_HOOK(count_aligned, __tsan_read##bytes, bytes, load)     \
  CUEMU_HOOK(count_aligned, __tsan_write##bytes, bytes, store)   \
  CUEMU_HOOK(count, __tsan_unaligned_read##bytes, bytes, load)   \
  CUEMU_HOOK(count, __tsan_unaligned_write##bytes, bytes, store) \
  CUEMU_HOOK(count, __tsan_volatile_read##bytes, bytes, load)    \
  CUEMU_HOOK(count, __tsan_volatile_write##bytes, bytes, store)

// Atomic operations of host code, such as those of std::shared_ptr and std::thread. `order` is sequential
// consistency.
#define CUEMU_ATOMIC_UPDATE(T, bits, operation)                                      \
  T __tsan_atomic##bits##_##operation(volatile T* address, T value, int /*order*/) { \
    return __atomic_##operation(address, value, __ATOMIC_SEQ_CST);                   \
  }
#define CUEMU_ATOMIC_EXCHANGE(T, bits, strength, is_weak)                                               \
  int __tsan_atomic##bits##_compare_exchange_##strength(volatile T* address, T* expected, T value, int, \
                                                        int) {                                          \
    return __atomic_compare_exchange_n(address, expected, value, is_weak, __ATOMIC_SEQ_CST,             \
                                       __ATOMIC_SEQ_CST);                                               \
  }
#define CUEMU_ATOMICS(T, bits)                                                    \
  T __tsan_atomic##bits##_load(const volatile T* address, int /*order*/) {        \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                            \
  }                                                                               \
  void __tsan_atomic##bits##_store(volatile T* address, T value, int /*order*/) { \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                           \
  }                                                                               \
  T __tsan_atomic##bits##_exchange(volatile T* address, T value, int /*order*/) { \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                 \
  }                                                                               \
  CUEMU_ATOMIC_UPDATE(T, bits, fetch_add)                                         \
  CUEMU_ATOMIC_UPDATE(T, bits, fetch_sub)                                         \
  CUEMU_ATOMIC_UPDATE(T, bits, fetch_and)                                         \
  CUEMU_ATOMIC_UPDATE(T, bits, fetch_or)                                          \
  CUEMU_ATOMIC_UPDATE(T, bits, fetch_xor)                                         \
  CUEMU_ATOMIC_EXCHANGE(T, bits, strong, false)                                   \
  CUEMU_ATOMIC_EXCHANGE(T, bits, weak, true)

extern "C" {
CUEMU_HOOKS(1)
CUEMU_HOOKS(2)
CUEMU_HOOKS(4)
CUEMU_HOOKS(8)
CUEMU_HOOKS(16)
CUEMU_ATOMICS(std::uint8_t, 8)
CUEMU_ATOMICS(std::uint16_t, 16)
CUEMU_ATOMICS(std::uint32_t, 32)
CUEMU_ATOMICS(std::uint64_t, 64)
void __tsan_atomic_thread_fence(int /*order*/) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int /*order*/) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
void __tsan_read_range(void* address, std::size_t bytes) {
  count(address, bytes, AccessKind::load, __builtin_return_address(0));
}
void __tsan_write_range(void* address, std::size_t bytes) {
  count(address, bytes, AccessKind::store, __builtin_return_address(0));
}
void __tsan_vptr_update(void** /*object*/, void* /*table*/) {}
void __tsan_vptr_read(void** /*object*/) {}
void __tsan_func_entry(void* /*caller*/) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
// NOLINTEND(bugprone-reserved-identifier)
