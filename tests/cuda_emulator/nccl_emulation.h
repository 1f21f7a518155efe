// The emulator's NCCL: what tests may set and ask of it.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>

namespace convoy::emulator {

/// How often the state of a communicator is asked for before a call is through: each question but the last is
/// answered by ncclInProgress, and what was called for is done then, not earlier.
void set_nccl_questions(int questions);

/// From now on this process's communicators of that rank report the error, and their collectives do not move.
void break_nccl(int rank, ncclResult_t error);

/// Collectives that have ended in this process, aborted ones among them; each replay counts.
std::uint64_t nccl_collectives();
/// Communicators of this process that were neither destroyed nor aborted.
int nccl_communicators();

// For its own sources.
void count_nccl_collective();
void set_nccl_error(const std::string& why);

}  // namespace convoy::emulator
