// Wrappers of AddressSanitizer's interface, which do nothing in a build without it.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace convoy::emulator {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kGuarded = true;
inline void begin_switch(void** shadow, const void* stack, std::size_t bytes) {
  __sanitizer_start_switch_fiber(shadow, stack, bytes);
}
inline void finish_switch(void* shadow, const void** stack, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(shadow, stack, bytes);
}
inline void poison(const void* begin, std::size_t bytes) { __asan_poison_memory_region(begin, bytes); }
inline void unpoison(const void* begin, std::size_t bytes) { __asan_unpoison_memory_region(begin, bytes); }
#else
inline constexpr bool kGuarded = false;
inline void begin_switch(void**, const void*, std::size_t) {}
inline void finish_switch(void*, const void**, std::size_t*) {}
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
#endif

}  // namespace convoy::emulator
