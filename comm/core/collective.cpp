#include "convoy/comm/core/collective.h"

#include <fmt/ranges.h>
#include <vector>

#include "convoy/comm/core/all_reduce.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

const char* to_string(CollectiveOp op) {
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

std::string to_string(const CollectiveSignature& collective) {
  std::string text = fmt::format("{} {}", to_string(collective.op), collective.number);
  if (!moves_views(collective.op)) return text;
  text += fmt::format(" ({} {}", collective.count, to_string(collective.dtype));
  if (collective.op == CollectiveOp::broadcast) text += fmt::format(" from rank {}", collective.root);
  text += ")";
  if (collective.op != CollectiveOp::broadcast && collective.root > 0 &&
      collective.root < std::ssize(kAllReduceNames))
    text += fmt::format(" by {}", to_string(static_cast<AllReduce>(collective.root)));
  if (collective.bucket >= 0) text += fmt::format(", bucket {}", collective.bucket);
  return text;
}

void verify_consistency(std::span<const CollectiveSignature> by_rank) {
  std::vector<bool> listed(by_rank.size(), false);
  std::string message;
  for (std::size_t first = 0; first < by_rank.size(); ++first) {
    if (listed[first]) continue;
    std::vector<int> equal;
    for (std::size_t rank = first; rank < by_rank.size(); ++rank) {
      if (by_rank[rank] != by_rank[first]) continue;
      equal.push_back(static_cast<int>(rank));
      listed[rank] = true;
    }
    if (equal.size() == by_rank.size()) return;
    message += fmt::format("{}{} in {}", message.empty() ? "" : ", ", format_ranks(equal),
                           to_string(by_rank[first]));
  }
  if (!message.empty()) fail<PeerError>("the ranks launched different collectives: {}", message);
}

std::string format_ranks(std::span<const int> ranks) {
  constexpr std::size_t kListed = 8;  // consecutive ranks, each by its number
  std::string list;
  for (std::size_t begin = 0, end; begin < ranks.size(); begin = end) {
    for (end = begin + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    if (end - begin <= kListed) end = begin + 1;
    list += fmt::format("{}{}", begin == 0 ? "" : ", ", ranks[begin]);
    if (end > begin + 1) list += fmt::format(" to {}", ranks[end - 1]);
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", list);
}

}  // namespace convoy::dist
