// Replaces the MPI rendezvous in a build without MPI.
#include "convoy/comm/bootstrap/mpi_rendezvous.h"
#include "convoy/comm/core/library_versions.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

std::string mpi_version_text() { return ""; }

std::unique_ptr<Rendezvous> rendezvous_by_mpi(const RendezvousPlan& plan, const RendezvousOptions&) {
  fail<UsageError>(
      "{}: this build has no MPI; install libopenmpi-dev and reconfigure, or use a rendezvous "
      "at tcp://HOST:PORT",
      plan.note);
}

std::unique_ptr<MessageLinks> make_mpi_links(Rendezvous&) {
  fail<UsageError>("MPI communicator: this build has no MPI; install libopenmpi-dev and reconfigure");
}

}  // namespace convoy::dist
