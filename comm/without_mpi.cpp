// In place of what needs MPI, where the build has none.
#include "comm/library_versions.h"
#include "comm/mpi_collectives.h"
#include "comm/mpi_communicator.h"
#include "comm/mpi_rendezvous.h"
#include "kernels/runtime/check.h"

namespace convoy {

std::string mpi_version_text() { return ""; }

std::unique_ptr<Rendezvous> meet_by_mpi(const MeetingPlan& plan, const RendezvousOptions&) {
  fail<UsageError>(
      "{}: this build has no MPI: install libopenmpi-dev and configure again, or give --rendezvous "
      "tcp://HOST:PORT",
      plan.note);
}

std::unique_ptr<MessageLinks> make_mpi_links(Rendezvous&) {
  fail<UsageError>("--comm mpi: this build has no MPI: install libopenmpi-dev and configure again");
}

bool mpi_adds(DType) { return false; }

std::unique_ptr<MpiCollectives> make_mpi_collectives(Rendezvous&, const char* flag) {
  fail<UsageError>("{}: this build has no MPI: install libopenmpi-dev and configure again", flag);
}

std::unique_ptr<Communicator> make_mpi_communicator(Rendezvous& rendezvous, const CommOptions&) {
  make_mpi_links(rendezvous);
  return nullptr;  // never: that throws
}

}  // namespace convoy
