// Who moves the data of a case: Convoy's communicators, or MPI, beside which they are measured.
#pragma once

#include <memory>

#include "bench/collective_case.h"
#include "comm/communicator.h"
#include "comm/mpi_collectives.h"

namespace convoy::bench {

class Carrier {
 public:
  virtual ~Carrier() = default;
  Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  /// One collective, of views as CollectiveData has them: the same where it is in place. It may return before
  /// that is through.
  virtual void launch(const Case& one, ConstView in, View out) = 0;
  /// Until all that was launched is through. Throws what it has met.
  virtual void wait() = 0;
  /// Where the result is, on ranks whose `in` and `out` are these.
  virtual ConstView result(const Case& one, ConstView in, View out) const = 0;
};

/// all_reduce and broadcast are in place alone, so out of place is a copy, on the communicator's stream, and
/// then that; of a broadcast the root copies.
std::unique_ptr<Carrier> make_own_carrier(Communicator& comm);
/// Blocks in launch(). Its broadcast copies as ours.
std::unique_ptr<Carrier> make_mpi_carrier(MpiCollectives& mpi, int rank);

}  // namespace convoy::bench
