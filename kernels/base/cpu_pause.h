// The pause of a thread that spins.
#pragma once

namespace convoy {

/// Tells the processor that the thread spins, which saves power and leaves the core to its other hardware
/// thread. Does nothing on processors without such an instruction.
inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace convoy
