// The test interface of the emulated NCCL.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <functional>
#include <string>

namespace convoy::emulator {

/// Sets how often ncclCommGetAsyncError returns ncclInProgress before a call is complete. The work of the
/// call is enqueued at the last of these polls, not earlier.
void set_nccl_polls(int polls);

/// Makes the existing communicators of `rank` in this process report `error`. Their collectives make no
/// progress.
void break_nccl(int rank, ncclResult_t error);

/// Returns the number of collectives that have ended in this process, including aborted ones. Each replay
/// counts.
std::uint64_t nccl_collectives();
/// Returns how many communicators of this process were begun with several ids.
int nccl_scalable_inits();
/// Returns the number of communicators of this process that were neither destroyed nor aborted.
int nccl_communicators();

/// Returns the field maxCTAs of the latest communicator's configuration; NCCL_CONFIG_UNDEF_INT if it was not set.
int nccl_max_ctas();

/// Sets a function that ncclCommAbort calls before anything else. May be null.
void set_nccl_abort_hook(std::function<void()> hook);

// Used by the sources of the emulated NCCL.
void count_nccl_collective();
void set_nccl_error(const std::string& why);

}  // namespace convoy::emulator
