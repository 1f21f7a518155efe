#include "convoy/comm/parallel/communicator_group.h"

namespace convoy::dist {

CommunicatorGroup::CommunicatorGroup(Communicator& comm)
    : comm_(comm), ready_(comm.context().stream()), done_(comm.context().stream()) {}

template <class F>
void CommunicatorGroup::in_order(const Stream& compute, const F& collective) {
  ready_.record(compute);
  ready_.wait(comm_.stream());
  collective();
  done_.record(comm_.stream());
  done_.wait(compute);
  comm_.check_errors();
}

void CommunicatorGroup::all_gather(const Tensor& local, const Tensor& gathered) {
  in_order(local.stream(),
           [&] { comm_.all_gather(local.view(), gathered.reshape({gathered.numel()}).view()); });
}

void CommunicatorGroup::all_reduce(const Tensor& values) {
  in_order(values.stream(), [&] { comm_.all_reduce(values.view()); });
}

}  // namespace convoy::dist
