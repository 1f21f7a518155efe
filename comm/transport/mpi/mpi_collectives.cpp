#include "convoy/comm/transport/mpi/mpi_collectives.h"

#include <limits>

#include "convoy/comm/bootstrap/mpi_links.h"
#include "convoy/comm/bootstrap/mpi_rendezvous.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

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
class SessionCollectives final : public MpiCollectives {
 public:
  explicit SessionCollectives(std::shared_ptr<MpiSession> session) : session_(std::move(session)) {}

  void all_reduce(ConstView in, View out) override {
    const int count = elements_of(out);
    const auto lock = session_->lock();
    check_mpi(MPI_Allreduce(in.data == out.data ? MPI_IN_PLACE : in.data, out.data, count,
                            mpi_type(out.dtype), MPI_SUM, MPI_COMM_WORLD),
              "MPI_Allreduce");
  }

  void reduce_scatter(ConstView in, View out) override {
    const int count = elements_of(out);
    const bool is_in_place = part(in.data, out.bytes()) == out.data;
    const auto lock = session_->lock();
    check_mpi(MPI_Reduce_scatter_block(is_in_place ? MPI_IN_PLACE : in.data,
                                       is_in_place ? const_cast<void*>(in.data) : out.data, count,
                                       mpi_type(out.dtype), MPI_SUM, MPI_COMM_WORLD),
              "MPI_Reduce_scatter_block");
  }

  void all_gather(ConstView in, View out) override {
    const int bytes = mpi_count(in.bytes());
    const bool is_in_place = part(out.data, in.bytes()) == in.data;
    const auto lock = session_->lock();
    check_mpi(MPI_Allgather(is_in_place ? MPI_IN_PLACE : in.data, bytes, MPI_BYTE, out.data, bytes, MPI_BYTE,
                            MPI_COMM_WORLD),
              "MPI_Allgather");
  }

  void broadcast(View data, int root) override {
    const int bytes = mpi_count(data.bytes());
    const auto lock = session_->lock();
    check_mpi(MPI_Bcast(data.data, bytes, MPI_BYTE, root, MPI_COMM_WORLD), "MPI_Bcast");
  }

 private:
  /// Returns the address of this rank's chunk of `whole`, in which each rank has `bytes` bytes.
  const void* part(const void* whole, std::size_t bytes) const {
    return static_cast<const char*>(whole) + static_cast<std::size_t>(session_->rank()) * bytes;
  }

  std::shared_ptr<MpiSession> session_;
};

}  // namespace

bool mpi_can_sum(DType dtype) { return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::i32; }

std::unique_ptr<MpiCollectives> make_mpi_collectives(Rendezvous& rendezvous, const char* flag) {
  auto* const mpi_rendezvous = dynamic_cast<MpiRendezvous*>(&rendezvous);
  check(mpi_rendezvous != nullptr,
        "{}: the ranks were not initialized through MPI ({}); start them with mpirun", flag,
        rendezvous.note());
  return std::make_unique<SessionCollectives>(mpi_rendezvous->session());
}

}  // namespace convoy::dist
