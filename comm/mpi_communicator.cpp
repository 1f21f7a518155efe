#include "comm/mpi_communicator.h"

#include "comm/cpu_communicator.h"
#include "comm/message_transport.h"
#include "comm/mpi_rendezvous.h"
#include "kernels/runtime/check.h"

namespace convoy {

std::unique_ptr<MessageLinks> make_mpi_links(Rendezvous& rendezvous) {
  auto* const met = dynamic_cast<MpiRendezvous*>(&rendezvous);
  check(met != nullptr, "--comm mpi: the ranks did not meet through MPI ({}): start them with mpirun",
        rendezvous.note());
  return met->new_links();
}

std::unique_ptr<Communicator> make_mpi_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  return std::make_unique<CpuCommunicator>(std::make_unique<MessageTransport>(make_mpi_links(rendezvous)),
                                           options);
}

}  // namespace convoy
