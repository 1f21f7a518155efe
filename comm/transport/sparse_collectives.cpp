#include "convoy/comm/transport/sparse_collectives.h"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "convoy/comm/core/sparse_graph.h"
#include "convoy/comm/core/view_parts.h"
#include "convoy/comm/transport/cpu_sum.h"

namespace convoy::dist {
namespace {

/// Calls `f` with the shards of `count` ranks, from the rank `distance` ranks after this one on. They are one view, or two
/// around the end of the data.
template <class F>
void for_shards_after(const LinkGroup& group, const View& data, int distance, int count, F&& f) {
  const int first = (group.rank + distance) % group.size(), until_end = std::min(count, group.size() - first);
  f(shards_of(data, first, first + until_end, group.size()));
  if (count > until_end) f(shards_of(data, 0, count - until_end, group.size()));
}

/// What a rank tells its parent, and later its children.
struct Report {
  CollectiveSignature signature;  // of the rank
  std::uint64_t differs = 0;      // whether not all signatures below the rank, or of all ranks, are equal
};

/// The sum of a shard begins at the rank after its own, and passes all ranks. 2 (n - 1) steps with the all-gather (Patarasuk,
/// Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009).
void ring_reduce_scatter(const LinkGroup& group, const View& data, const Deadline& deadline) {
  for (int step = 1; step < group.size(); ++step) {
    for_shards_after(group, data, group.size() - step, 1,
                     [&](const View& sum) { group.links.send(group.at(group.rank + 1), sum); });
    for_shards_after(group, data, group.size() - step - 1, 1,
                     [&](const View& sum) { group.links.receive_addend(group.at(group.rank - 1), sum); });
    group.links.wait(deadline);
  }
}

void ring_all_gather(const LinkGroup& group, const View& data, const Deadline& deadline) {
  for (int step = 1; step < group.size(); ++step) {
    for_shards_after(group, data, group.size() + 1 - step, 1,
                     [&](const View& sent) { group.links.send(group.at(group.rank + 1), sent); });
    for_shards_after(group, data, group.size() - step, 1,
                     [&](const View& got) { group.links.receive(group.at(group.rank - 1), got, kData); });
    group.links.wait(deadline);
  }
}

/// In each step the number of shards that a rank still sums is halved. 2 log2(n) steps with the all-gather (Rabenseifner's
/// algorithm: Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005), for any n on
/// a circulant graph (Träff: Optimal, non-pipelined reduce-scatter and allreduce algorithms, 2023).
void halving_reduce_scatter(const LinkGroup& group, const View& data, const Deadline& deadline) {
  const std::vector<int> left =
      halvings_of(group.size());  // shards: that of this rank and those of the next ones
  for (std::size_t step = 1; step < left.size(); ++step) {
    const int kept = left[step], moved = left[step - 1] - kept;
    for_shards_after(group, data, kept, moved,
                     [&](const View& sent) { group.links.send(group.at(group.rank + kept), sent); });
    for_shards_after(group, data, 0, moved,
                     [&](const View& sum) { group.links.receive_addend(group.at(group.rank - kept), sum); });
    group.links.wait(deadline);
  }
}

/// The steps of halving_reduce_scatter() backwards.
void doubling_all_gather(const LinkGroup& group, const View& data, const Deadline& deadline) {
  const std::vector<int> here = halvings_of(group.size());  // shards, as above
  for (std::size_t step = here.size() - 1; step > 0; --step) {
    const int kept = here[step], moved = here[step - 1] - kept;
    for_shards_after(group, data, 0, moved,
                     [&](const View& sent) { group.links.send(group.at(group.rank - kept), sent); });
    for_shards_after(group, data, kept, moved,
                     [&](const View& got) { group.links.receive(group.at(group.rank + kept), got, kData); });
    group.links.wait(deadline);
  }
}

/// Leaves the sum over all ranks on the first rank.
void tree_reduce(const LinkGroup& group, const View& data, const Deadline& deadline) {
  const BinomialTree tree(group.rank, group.size());
  for (const int child : tree.children) {  // one after another: the order of additions is fixed
    group.links.receive_addend(group.at(child), data);
    group.links.wait(deadline);
  }
  if (tree.parent >= 0) group.links.send(group.at(tree.parent), data);
  group.links.wait(deadline);
}

}  // namespace

void convert(const ConstView& from, const View& to) {
  if (from.dtype == to.dtype) return copy_view(from, to);
  const SumPart part{from};
  sum_in_order({&part, 1}, to);
}

void reduce_scatter_by(AllReduce algorithm, const LinkGroup& group, const View& data,
                       const Deadline& deadline) {
  (algorithm == AllReduce::ring ? ring_reduce_scatter : halving_reduce_scatter)(group, data, deadline);
}

void all_gather_by(AllReduce algorithm, const LinkGroup& group, const View& data, const Deadline& deadline) {
  (algorithm == AllReduce::ring ? ring_all_gather : doubling_all_gather)(group, data, deadline);
}

void all_reduce_by(AllReduce algorithm, const LinkGroup& group, const View& sum, const View& data,
                   const Deadline& deadline) {
  const bool is_converted = sum.data != data.data;
  if (algorithm == AllReduce::tree) {
    tree_reduce(group, sum, deadline);
    if (group.rank == 0 && is_converted) convert(sum, data);
    return tree_broadcast(group, data, 0, kSum, deadline);
  }
  reduce_scatter_by(algorithm, group, sum, deadline);
  if (is_converted)
    convert(shard_of(sum, group.rank, group.size()), shard_of(data, group.rank, group.size()));
  all_gather_by(algorithm, group, data, deadline);
}

void tree_broadcast(const LinkGroup& group, const View& data, int root, const char* what,
                    const Deadline& deadline) {
  const BinomialTree tree(group.rank, group.size(), root);
  if (tree.parent >= 0) group.links.receive(group.at(tree.parent), data, what);
  group.links.wait(deadline);
  // One after another, and first to the child with the most ranks below it: they would share this rank's link.
  for (const int child : tree.children | std::views::reverse) {
    group.links.send(group.at(child), data);
    group.links.wait(deadline);
  }
}

bool agree_along_tree(const LinkGroup& group, const CollectiveSignature& local, const Deadline& deadline) {
  MessageLinks& links = *group.links;
  const BinomialTree tree(group.rank, group.size());
  const auto bytes_of = [](auto& value) { return std::as_writable_bytes(std::span(&value, 1)); };
  std::vector<Report> reports(tree.children.size());
  for (std::size_t i = 0; i < reports.size(); ++i)
    links.receive(group.at(tree.children[i]), bytes_of(reports[i]));
  links.wait(deadline);
  Report report{.signature = local};
  for (const Report& below : reports)
    if (below.differs != 0 || below.signature != local) report.differs = 1;
  Report verdict = report;  // of the first rank
  if (tree.parent >= 0) {
    links.send(group.at(tree.parent), bytes_of(report));
    links.receive(group.at(tree.parent), bytes_of(verdict));
    links.wait(deadline);
  }
  for (const int child : tree.children) links.send(group.at(child), bytes_of(verdict));
  links.wait(deadline);
  return verdict.differs == 0;
}

void fail_as_inconsistent(MessageLinks& links, const CollectiveSignature& local, const Deadline& deadline) {
  const std::string own(reinterpret_cast<const char*>(&local), sizeof local);
  std::vector<CollectiveSignature> by_rank(static_cast<std::size_t>(links.size()));
  const std::vector<std::string> texts = exchange_texts(links, own, deadline);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    std::memcpy(&by_rank[rank], texts[rank].data(), sizeof local);
  verify_consistency(by_rank);
  throw PeerError("the ranks disagree on whether their collectives differ");
}

}  // namespace convoy::dist
