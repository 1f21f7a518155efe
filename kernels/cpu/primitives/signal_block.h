// Keeps signal handlers away from code that has no stack.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace convoy::kernels {

/// While it exists, signals wait that are sent to the calling thread, except those of its own faults. Also of threads that
/// it starts meanwhile, for as long as they exist. oneDNN's code for f32 GEMM, also in convolutions, lets the stack pointer
/// point to memory of the heap, so a signal handler would overwrite what is below it (oneDNN's issue 4845: all versions
/// until 2026).
class SignalBlock {
 public:
  SignalBlock() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&signals, fault);
    pthread_sigmask(SIG_BLOCK, &signals, &previous_);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t previous_;
};

}  // namespace convoy::kernels
