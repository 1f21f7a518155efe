// Replaces the MPI transport in a build without MPI.
#include "convoy/comm/bootstrap/mpi_rendezvous.h"
#include "convoy/comm/transport/mpi/mpi_collectives.h"
#include "convoy/comm/transport/mpi/mpi_communicator.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

bool mpi_can_sum(DType) { return false; }

std::unique_ptr<MpiCollectives> make_mpi_collectives(Rendezvous&, const char* flag) {
  fail<UsageError>("{}: this build has no MPI; install libopenmpi-dev and reconfigure", flag);
}

std::unique_ptr<Communicator> make_mpi_communicator(Rendezvous& rendezvous, const CommOptions&) {
  make_mpi_links(rendezvous);
  return nullptr;  // unreachable: make_mpi_links() throws
}

}  // namespace convoy::dist
