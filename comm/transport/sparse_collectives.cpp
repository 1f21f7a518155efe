#include "convoy/comm/transport/sparse_collectives.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "convoy/comm/core/sparse_graph.h"

namespace convoy::dist {
namespace {

/// Returns the rank that is `distance` ranks after this one.
int rank_after(const CheckedLinks& links, int distance) {
  return (links->rank() + distance + links->size()) % links->size();
}

/// Calls `f` with the shards of `count` ranks, from the rank `distance` ranks after this one on. They are one view, or two
/// around the end of the data.
template <class F>
void for_shards_after(const CheckedLinks& links, const View& data, int distance, int count, F&& f) {
  const int first = rank_after(links, distance), until_end = std::min(count, links->size() - first);
  f(shards_of(data, first, first + until_end, links->size()));
  if (count > until_end) f(shards_of(data, 0, count - until_end, links->size()));
}

/// What a rank tells its parent, and later its children.
struct Report {
  CollectiveSignature signature;  // of the rank
  std::uint64_t differs = 0;      // whether not all signatures below the rank, or of all ranks, are equal
};

}  // namespace

/// The sum of a shard begins at the rank after its own, and passes all ranks. 2 (n - 1) steps with the all-gather (Patarasuk,
/// Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009).
void ring_reduce_scatter(CheckedLinks& links, const View& data, const Deadline& deadline) {
  const auto shard = [&](int distance) { return shard_of(data, rank_after(links, distance), links->size()); };
  for (int step = 1; step < links->size(); ++step) {
    links.send(rank_after(links, 1), shard(-step));
    links.receive_addend(rank_after(links, -1), shard(-step - 1));
    links.wait(deadline);
  }
}

void ring_all_gather(CheckedLinks& links, const View& data, const Deadline& deadline) {
  const auto shard = [&](int distance) { return shard_of(data, rank_after(links, distance), links->size()); };
  for (int step = 1; step < links->size(); ++step) {
    links.send(rank_after(links, 1), shard(1 - step));
    links.receive(rank_after(links, -1), shard(-step), kData);
    links.wait(deadline);
  }
}

/// In each step the number of shards that a rank still sums is halved. 2 log2(n) steps with the all-gather (Rabenseifner's
/// algorithm: Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005), for any n on
/// a circulant graph (Träff: Optimal, non-pipelined reduce-scatter and allreduce algorithms, 2023).
void halving_reduce_scatter(CheckedLinks& links, const View& data, const Deadline& deadline) {
  const std::vector<int> left =
      halvings_of(links->size());  // shards: that of this rank and those of the next ones
  for (std::size_t step = 1; step < left.size(); ++step) {
    const int kept = left[step], moved = left[step - 1] - kept;
    for_shards_after(links, data, kept, moved,
                     [&](const View& sent) { links.send(rank_after(links, kept), sent); });
    for_shards_after(links, data, 0, moved,
                     [&](const View& sum) { links.receive_addend(rank_after(links, -kept), sum); });
    links.wait(deadline);
  }
}

/// The steps of halving_reduce_scatter() backwards.
void doubling_all_gather(CheckedLinks& links, const View& data, const Deadline& deadline) {
  const std::vector<int> here = halvings_of(links->size());  // shards, as above
  for (std::size_t step = here.size() - 1; step > 0; --step) {
    const int kept = here[step], moved = here[step - 1] - kept;
    for_shards_after(links, data, 0, moved,
                     [&](const View& sent) { links.send(rank_after(links, -kept), sent); });
    for_shards_after(links, data, kept, moved,
                     [&](const View& got) { links.receive(rank_after(links, kept), got, kData); });
    links.wait(deadline);
  }
}

void tree_reduce(CheckedLinks& links, const View& data, const Deadline& deadline) {
  const BinomialTree tree(links->rank(), links->size());
  for (const int child : tree.children) {  // one after another: the order of additions is fixed
    links.receive_addend(child, data);
    links.wait(deadline);
  }
  if (tree.parent >= 0) links.send(tree.parent, data);
  links.wait(deadline);
}

void tree_broadcast(CheckedLinks& links, const View& data, int root, const char* what,
                    const Deadline& deadline) {
  const BinomialTree tree(links->rank(), links->size(), root);
  if (tree.parent >= 0) links.receive(tree.parent, data, what);
  links.wait(deadline);
  for (const int child : tree.children) links.send(child, data);
  links.wait(deadline);
}

void verify_along_tree(MessageLinks& links, const CollectiveSignature& local, const Deadline& deadline) {
  const BinomialTree tree(links.rank(), links.size());
  const auto bytes_of = [](auto& value) { return std::as_writable_bytes(std::span(&value, 1)); };
  std::vector<Report> reports(tree.children.size());
  for (std::size_t i = 0; i < reports.size(); ++i) links.receive(tree.children[i], bytes_of(reports[i]));
  links.wait(deadline);
  Report report{.signature = local};
  for (const Report& below : reports)
    if (below.differs != 0 || below.signature != local) report.differs = 1;
  Report verdict = report;  // of rank 0
  if (tree.parent >= 0) {
    links.send(tree.parent, bytes_of(report));
    links.receive(tree.parent, bytes_of(verdict));
    links.wait(deadline);
  }
  for (const int child : tree.children) links.send(child, bytes_of(verdict));
  links.wait(deadline);
  if (verdict.differs == 0) return;
  const std::string own(reinterpret_cast<const char*>(&local), sizeof local);
  std::vector<CollectiveSignature> by_rank(static_cast<std::size_t>(links.size()));
  const std::vector<std::string> texts = exchange_texts(links, own, deadline);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    std::memcpy(&by_rank[rank], texts[rank].data(), sizeof local);
  verify_consistency(by_rank);
}

}  // namespace convoy::dist
