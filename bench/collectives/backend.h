// The implementations that execute a benchmark case: Convoy's communicators, and MPI as a baseline.
#pragma once

#include <memory>

#include "bench/collectives/case.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/transport/mpi/mpi_collectives.h"

namespace convoy::bench {

/// An implementation of collectives. Not thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// Starts one collective on the views of CollectiveData, and may return before it has completed.
  /// `in` and `out` share memory if the placement is in-place.
  virtual void launch(const Case& one, ConstView in, View out) = 0;
  /// Blocks until all launched collectives have completed. Throws the error of a collective that failed.
  virtual void wait() = 0;
  /// Returns the view that holds the result of a collective launched with `in` and `out`.
  virtual ConstView result(const Case& one, ConstView in, View out) const = 0;
};

/// Returns a backend that runs collectives on `comm`, which must outlive it. The communicator's all_reduce
/// and broadcast are always in-place. An out-of-place case copies the input first, on the communicator's
/// stream; for a broadcast only the root copies.
std::unique_ptr<Backend> make_convoy_backend(dist::Communicator& comm);
/// Returns a backend that runs collectives on `mpi`, which must outlive it. launch() blocks until the
/// collective has completed. An out-of-place broadcast copies as make_convoy_backend() does.
std::unique_ptr<Backend> make_mpi_backend(dist::MpiCollectives& mpi, int rank);

}  // namespace convoy::bench
