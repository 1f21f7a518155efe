// Takes the place of functions of the C library in this program and in all shared libraries that it loads: the dynamic
// linker finds the definitions of a program before those of a library. Each function of libc_*.cpp has the name of a
// function of the C library as its symbol. Called by a coroutine of the simulation, it acts on the simulated machines and
// spends virtual time. Called by any other code, or for a descriptor that is no simulated one, it calls the C library.
#pragma once

#include <dlfcn.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <type_traits>

#include "tests/simulation/machine.h"

namespace simulation {

// What calls cost, before the slowness of the host.
inline constexpr Time kCall = kMicrosecond, kConnectCall = 5 * kMicrosecond, kFileCall = 10 * kMicrosecond;

/// Returns the coroutine that calls; null outside of the simulation.
inline Coroutine* self() { return scheduler() == nullptr ? nullptr : scheduler()->current(); }
/// Spends the time of a system call, in which other coroutines run.
void charge(Time base);
/// Sets errno and returns -1.
inline int fail_with(int error) {
  errno = error;
  return -1;
}

/// Returns the next definition of a symbol: that of the C library.
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

/// Returns the file of a descriptor as this type, or null.
template <class F>
F* file_of(int descriptor) {
  return network() == nullptr ? nullptr : dynamic_cast<F*>(network()->file(descriptor));
}

inline bool is_simulated(int descriptor) { return network() != nullptr && network()->has(descriptor); }

inline Time time_of(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }
/// Returns the virtual time of a time of a clock.
Time virtual_time(clockid_t clock, const timespec& time);

/// Blocks the caller until the file is ready for one of the events.
void wait_for(File* file, short events);

// send() and recv() on a socket.
ssize_t send_bytes(Socket* socket, const iovec* parts, std::size_t count, int flags);
ssize_t receive_bytes(Socket* socket, void* buffer, std::size_t size);

}  // namespace simulation

// Declares and defines a function whose symbol is `name`. `real` is what the C library has.
#define REPLACE(result, name, parameters)                  \
  extern "C" result replaced_##name parameters asm(#name); \
  result replaced_##name parameters
#define REAL(name, ...)                                                                     \
  static auto* const real = next<std::remove_pointer_t<decltype(&replaced_##name)>>(#name); \
  return real(__VA_ARGS__)
