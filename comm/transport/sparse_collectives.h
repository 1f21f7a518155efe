// Collectives along sparse graphs: rings, recursive halving and trees.
#pragma once

#include <vector>

#include "convoy/comm/core/all_reduce.h"
#include "convoy/comm/core/collective.h"
#include "convoy/comm/transport/transfer.h"

namespace convoy::dist {

/// The ranks of a collective, which are all ranks of the links, or some.
struct LinkGroup {
  CheckedLinks& links;
  std::vector<int> ranks;  // of the links, in an order that is the same on all of them
  int rank;                // the position of this one

  int size() const { return static_cast<int>(ranks.size()); }
  /// Returns the rank of the links at a position, modulo the number of ranks.
  int at(int position) const { return ranks[static_cast<std::size_t>((position + size()) % size())]; }
};

// Each rank has one shard of the data (shard_of()), that of its position. A reduce-scatter leaves the sum over all ranks in
// the shard of this rank, and partial sums in the others. An all-gather copies the shard of each rank to all ranks. The
// data are in the accumulator type (sum_type()) where they are summed. AllReduce::ring takes a ring, all others halving
// and doubling.

void reduce_scatter_by(AllReduce algorithm, const LinkGroup& group, const View& data,
                       const Deadline& deadline);
void all_gather_by(AllReduce algorithm, const LinkGroup& group, const View& data, const Deadline& deadline);
/// Replaces `data` by its sum over all ranks. `sum` are the data in the accumulator type, or `data` itself if it has that
/// type. `algorithm` is not direct.
void all_reduce_by(AllReduce algorithm, const LinkGroup& group, const View& sum, const View& data,
                   const Deadline& deadline);
/// Copies `data` of the rank at position `root` to all ranks. `what` is sent, for verify_transfer().
void tree_broadcast(const LinkGroup& group, const View& data, int root, const char* what,
                    const Deadline& deadline);
/// Returns whether the signatures of a collective are equal on all ranks: the first rank learns so along a tree, and tells
/// all ranks.
bool agree_along_tree(const LinkGroup& group, const CollectiveSignature& local, const Deadline& deadline);

/// Compares the signatures of all ranks of the links, which differ. Throws as verify_consistency() does.
[[noreturn]] void fail_as_inconsistent(MessageLinks& links, const CollectiveSignature& local,
                                       const Deadline& deadline);

/// Copies `from` to `to`, which may have another one of the types of a sum and its parts.
void convert(const ConstView& from, const View& to);

}  // namespace convoy::dist
