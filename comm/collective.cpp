#include "comm/collective.h"

#include <vector>

#include "comm/rank_text.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

const char* name_of(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::all_reduce: return "all-reduce";
    case CollectiveOp::broadcast: return "broadcast";
    case CollectiveOp::reduce_scatter: return "reduce-scatter";
    case CollectiveOp::all_gather: return "all-gather";
    case CollectiveOp::barrier: return "barrier";
    case CollectiveOp::gather: return "gather";
    case CollectiveOp::split: return "split";
    case CollectiveOp::finish: return "finish";
  }
  return "?";
}

bool moves_views(CollectiveOp op) {
  return op == CollectiveOp::all_reduce || op == CollectiveOp::broadcast ||
         op == CollectiveOp::reduce_scatter || op == CollectiveOp::all_gather;
}

}  // namespace

std::string text_of(const Collective& collective) {
  std::string text = fmt::format("{} {}", name_of(collective.op), collective.number);
  if (!moves_views(collective.op)) return text;
  text += fmt::format(" ({} {}", collective.count, name_of(collective.dtype));
  if (collective.op == CollectiveOp::broadcast) text += fmt::format(" from rank {}", collective.root);
  return text + ")";
}

void check_same(std::span<const Collective> by_rank) {
  std::vector<bool> told(by_rank.size(), false);
  std::string message;
  for (std::size_t first = 0; first < by_rank.size(); ++first) {
    if (told[first]) continue;
    std::vector<int> alike;
    for (std::size_t rank = first; rank < by_rank.size(); ++rank) {
      if (by_rank[rank] != by_rank[first]) continue;
      alike.push_back(static_cast<int>(rank));
      told[rank] = true;
    }
    if (alike.size() == by_rank.size()) return;
    message +=
        fmt::format("{}{} in {}", message.empty() ? "" : ", ", text_of_ranks(alike), text_of(by_rank[first]));
  }
  if (!message.empty()) fail<PeerError>("the ranks disagree: {}", message);
}

}  // namespace convoy
