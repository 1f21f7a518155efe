#include "comm/rank_exchange.h"

namespace convoy {

RankExchange::RankExchange(Communicator& comm)
    : comm_(comm), ready_(comm.device().stream()), done_(comm.device().stream()) {}

template <class F>
void RankExchange::in_order(const Stream& compute, const F& exchange) {
  ready_.record(compute);
  ready_.wait(comm_.stream());
  exchange();
  done_.record(comm_.stream());
  done_.wait(compute);
  comm_.check_errors();
}

void RankExchange::all_gather(const Tensor& mine, const Tensor& all) {
  in_order(mine.stream(), [&] { comm_.all_gather(mine.view(), all.reshape({all.numel()}).view()); });
}

void RankExchange::all_reduce(const Tensor& sums) {
  in_order(sums.stream(), [&] { comm_.all_reduce(sums.view()); });
}

}  // namespace convoy
