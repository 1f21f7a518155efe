#include "bench/collectives/backend.h"

#include <type_traits>

#include "convoy/comm/core/view_parts.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::bench {
namespace {

class ConvoyBackend final : public Backend {
 public:
  explicit ConvoyBackend(dist::Communicator& comm) : comm_(comm), done_(comm.stream()) {}

  void launch(const Case& one, ConstView in, View out) override {
    switch (one.collective) {
      case Collective::all_reduce: copy(in, out); return comm_.all_reduce(out);
      case Collective::reduce_scatter: return comm_.reduce_scatter(in, out);
      case Collective::all_gather: return comm_.all_gather(in, out);
      case Collective::broadcast:
        if (comm_.rank() == one.root) copy(in, out);
        return comm_.broadcast(out, one.root);
    }
  }

  void wait() override {
    done_.record(comm_.stream());
    done_.wait();
    comm_.check_errors();
  }

  ConstView result(const Case&, ConstView, View out) const override { return out; }

 private:
  /// Enqueues a copy on the communicator's stream; does nothing if both views are the same memory.
  void copy(ConstView in, View out) {
    if (in.data == out.data) return;
    on(comm_.stream(), [&](auto& stream) {
      if constexpr (std::is_same_v<decltype(stream), CpuStream&>)
        stream.submit([in, out] { dist::copy_view(in, out); });
      else
        kernels::cast(stream, in, out);  // a cast between equal types is a copy
    });
  }

  dist::Communicator& comm_;
  Event done_;
};

class MpiBackend final : public Backend {
 public:
  MpiBackend(dist::MpiCollectives& mpi, int rank) : mpi_(mpi), rank_(rank) {}

  void launch(const Case& one, ConstView in, View out) override {
    switch (one.collective) {
      case Collective::all_reduce: return mpi_.all_reduce(in, out);
      case Collective::reduce_scatter: return mpi_.reduce_scatter(in, out);
      case Collective::all_gather: return mpi_.all_gather(in, out);
      case Collective::broadcast:
        if (rank_ == one.root) dist::copy_view(in, out);
        return mpi_.broadcast(out, one.root);
    }
  }

  void wait() override {}

  ConstView result(const Case& one, ConstView in, View out) const override {
    const bool is_in_place = one.collective == Collective::reduce_scatter &&
                             dist::subview(in, rank_ * one.count, one.count).data == out.data;
    return is_in_place ? dist::subview(in, 0, one.count) : ConstView(out);
  }

 private:
  dist::MpiCollectives& mpi_;
  int rank_;
};

}  // namespace

std::unique_ptr<Backend> make_convoy_backend(dist::Communicator& comm) {
  return std::make_unique<ConvoyBackend>(comm);
}

std::unique_ptr<Backend> make_mpi_backend(dist::MpiCollectives& mpi, int rank) {
  return std::make_unique<MpiBackend>(mpi, rank);
}

}  // namespace convoy::bench
