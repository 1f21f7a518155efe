#include "convoy/comm/transport/mpi/mpi_communicator.h"

#include "convoy/comm/bootstrap/mpi_rendezvous.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/message_transport.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

std::unique_ptr<MessageLinks> make_mpi_links(Rendezvous& rendezvous) {
  auto* const mpi_rendezvous = dynamic_cast<MpiRendezvous*>(&rendezvous);
  check(mpi_rendezvous != nullptr,
        "MPI communicator: the ranks were not initialized through MPI ({}); start them with mpirun",
        rendezvous.note());
  return mpi_rendezvous->new_links();
}

std::unique_ptr<Communicator> make_mpi_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  return std::make_unique<CpuCommunicator>(std::make_unique<MessageTransport>(make_mpi_links(rendezvous)),
                                           options);
}

}  // namespace convoy::dist
