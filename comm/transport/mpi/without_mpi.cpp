// Replaces MPI's rendezvous, messages and collectives in a build without MPI.
#include "convoy/comm/bootstrap/mpi_rendezvous.h"
#include "convoy/comm/core/library_versions.h"
#include "convoy/comm/transport/mpi/mpi_communicator.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

std::string mpi_version_text() { return ""; }

bool mpi_can_sum(DType) { return false; }

std::unique_ptr<Rendezvous> rendezvous_by_mpi(const RendezvousPlan& plan, const RendezvousOptions&) {
  fail<UsageError>(
      "{}: this build has no MPI; install libopenmpi-dev and reconfigure, or use a rendezvous "
      "at tcp://HOST:PORT",
      plan.note);
}

std::unique_ptr<MessageLinks> make_mpi_links(Rendezvous&) {
  fail<UsageError>("MPI communicator: this build has no MPI; install libopenmpi-dev and reconfigure");
}

std::unique_ptr<Communicator> make_mpi_communicator(Rendezvous& rendezvous, const CommOptions&) {
  make_mpi_links(rendezvous);
  return nullptr;  // unreachable: make_mpi_links() throws
}

MpiCollective mpi_collective(Rendezvous&, const char* flag) {
  fail<UsageError>("{}: this build has no MPI; install libopenmpi-dev and reconfigure", flag);
}

}  // namespace convoy::dist
