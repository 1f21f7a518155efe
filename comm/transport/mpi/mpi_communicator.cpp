#include "convoy/comm/transport/mpi/mpi_communicator.h"

#include <limits>

#include "convoy/comm/bootstrap/mpi_links.h"
#include "convoy/comm/bootstrap/mpi_rendezvous.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/message_transport.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

MpiRendezvous& mpi_rendezvous_of(Rendezvous& rendezvous, const char* user) {
  auto* const mpi_rendezvous = dynamic_cast<MpiRendezvous*>(&rendezvous);
  check(mpi_rendezvous != nullptr,
        "{}: the ranks were not initialized through MPI ({}); start them with mpirun", user,
        rendezvous.note());
  return *mpi_rendezvous;
}

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return MPI_DOUBLE;
    case DType::f32: return MPI_FLOAT;
    case DType::i32: return MPI_INT32_T;
    default: return MPI_DATATYPE_NULL;
  }
}

int mpi_count(std::size_t count) {
  check(count <= std::numeric_limits<int>::max(), "MPI supports at most {} elements per call, found {}",
        std::numeric_limits<int>::max(), count);
  return static_cast<int>(count);
}

/// Returns the number of elements; throws UsageError if MPI cannot sum their type.
int elements_of(ConstView view) {
  check(mpi_can_sum(view.dtype), "MPI cannot sum {}, expected f64, f32 or i32", to_string(view.dtype));
  return mpi_count(static_cast<std::size_t>(view.numel()));
}

/// Runs in MPI_COMM_WORLD. MPI separates its collectives from the point-to-point messages of MpiLinks.
void run_mpi_collective(MpiSession& session, CollectiveOp op, ConstView in, View out, int root) {
  const auto chunk = [&](const void* whole, std::size_t bytes) {
    return static_cast<const char*>(whole) + static_cast<std::size_t>(session.rank()) * bytes;
  };
  if (op == CollectiveOp::all_reduce) {
    const int count = elements_of(out);
    const auto lock = session.lock();
    check_mpi(MPI_Allreduce(in.data == out.data ? MPI_IN_PLACE : in.data, out.data, count,
                            mpi_type(out.dtype), MPI_SUM, MPI_COMM_WORLD),
              "MPI_Allreduce");
  } else if (op == CollectiveOp::reduce_scatter) {
    const int count = elements_of(out);
    const bool is_in_place = chunk(in.data, out.bytes()) == out.data;
    const auto lock = session.lock();
    check_mpi(MPI_Reduce_scatter_block(is_in_place ? MPI_IN_PLACE : in.data,
                                       is_in_place ? const_cast<void*>(in.data) : out.data, count,
                                       mpi_type(out.dtype), MPI_SUM, MPI_COMM_WORLD),
              "MPI_Reduce_scatter_block");
  } else if (op == CollectiveOp::all_gather) {
    const int bytes = mpi_count(in.bytes());
    const bool is_in_place = chunk(out.data, in.bytes()) == in.data;
    const auto lock = session.lock();
    check_mpi(MPI_Allgather(is_in_place ? MPI_IN_PLACE : in.data, bytes, MPI_BYTE, out.data, bytes, MPI_BYTE,
                            MPI_COMM_WORLD),
              "MPI_Allgather");
  } else {
    const int bytes = mpi_count(out.bytes());
    const auto lock = session.lock();
    check_mpi(MPI_Bcast(out.data, bytes, MPI_BYTE, root, MPI_COMM_WORLD), "MPI_Bcast");
  }
}

}  // namespace

std::unique_ptr<MessageLinks> make_mpi_links(Rendezvous& rendezvous) {
  return mpi_rendezvous_of(rendezvous, "MPI communicator").new_links();
}

std::unique_ptr<Communicator> make_mpi_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  return std::make_unique<CpuCommunicator>(
      std::make_unique<MessageTransport>(make_mpi_links(rendezvous), options.all_reduce), options);
}

bool mpi_can_sum(DType dtype) { return mpi_type(dtype) != MPI_DATATYPE_NULL; }

MpiCollective mpi_collective(Rendezvous& rendezvous, const char* flag) {
  return [session = mpi_rendezvous_of(rendezvous, flag).session()](CollectiveOp op, ConstView in, View out,
                                                                   int root) {
    run_mpi_collective(*session, op, in, out, root);
  };
}

}  // namespace convoy::dist
