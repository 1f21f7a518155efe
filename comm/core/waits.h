// The waits of a job: what may have to wait for another process or for a file system, and what ends the wait.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace convoy::dist {

/// What a rank, an agent or convoy-launch waits for. The code of each wait refers to its row.
enum class Wait : std::uint8_t {
  mpi,         ///< in MPI_Init() or MPI_Finalize()
  rendezvous,  ///< for the other ranks at the start, or in an exchange of the rendezvous
  connect,     ///< for one address of a peer
  collective,  ///< in a collective
  silent,      ///< for a rank that is stopped, or whose control thread does not answer
  storage,     ///< for a rank that reads or writes files, or downloads
  debugger,    ///< for a person with a debugger
  stop,        ///< for the ranks to agree where they stop after a signal
  exit,        ///< for a rank to exit once the job has ended
  host,        ///< for the agent of a host
  start,       ///< for the agents of convoy-launch to be ready
  grace,       ///< for the ranks to exit after one has failed, under convoy-launch
  regroup,     ///< for a new group after a peer has failed
  output       ///< for a terminal that does not read
};

/// A row of the table in docs/reliability.md, which also says who owes the end of a wait, which option sets the
/// limit, and what happens then.
struct WaitRow {
  Wait wait;              ///< the row
  std::string_view name;  ///< its name
  double seconds;         ///< default limit; 0: none
};

/// All waits, in the order of Wait.
inline constexpr std::array kWaits = {
    WaitRow{Wait::mpi, "mpi", 300},         WaitRow{Wait::rendezvous, "rendezvous", 300},
    WaitRow{Wait::connect, "connect", 5},   WaitRow{Wait::collective, "collective", 300},
    WaitRow{Wait::silent, "silent", 300},   WaitRow{Wait::storage, "storage", 1800},
    WaitRow{Wait::debugger, "debugger", 0}, WaitRow{Wait::stop, "stop", 300},
    WaitRow{Wait::exit, "exit", 300},       WaitRow{Wait::host, "host", 20},
    WaitRow{Wait::start, "start", 60},      WaitRow{Wait::grace, "grace", 30},
    WaitRow{Wait::regroup, "regroup", 0},   WaitRow{Wait::output, "output", 0},
};

/// Returns the row of a wait.
constexpr const WaitRow& row_of(Wait wait) { return kWaits[static_cast<std::size_t>(wait)]; }

/// The variable with the limit of Wait::host in seconds, which convoy-launch sets.
inline constexpr const char* kHostTimeoutVariable = "CONVOY_HOST_TIMEOUT";
/// The variable with the seconds for which a rank was slow when a warning names it.
inline constexpr const char* kStragglerWindowVariable = "CONVOY_STRAGGLER_WINDOW";

}  // namespace convoy::dist
