// Collectives along sparse graphs: rings, recursive halving and trees.
#pragma once

#include "convoy/comm/core/collective.h"
#include "convoy/comm/transport/transfer.h"

namespace convoy::dist {

// Each rank has one shard of the data (shard_of()). A reduce-scatter leaves the sum over all ranks in the shard of this
// rank, and partial sums in the others. An all-gather copies the shard of each rank to all ranks. The data are in the
// accumulator type (sum_type()) where they are summed.

void ring_reduce_scatter(CheckedLinks& links, const View& data, const Deadline& deadline);
void ring_all_gather(CheckedLinks& links, const View& data, const Deadline& deadline);

void halving_reduce_scatter(CheckedLinks& links, const View& data, const Deadline& deadline);
void doubling_all_gather(CheckedLinks& links, const View& data, const Deadline& deadline);

/// Leaves the sum over all ranks on rank 0.
void tree_reduce(CheckedLinks& links, const View& data, const Deadline& deadline);
/// Copies `data` of rank `root` to all ranks. `what` is sent, for verify_transfer().
void tree_broadcast(CheckedLinks& links, const View& data, int root, const char* what,
                    const Deadline& deadline);

/// Compares the signature of a collective with those of all ranks: rank 0 learns along the tree whether they differ, and
/// tells all ranks. Throws as verify_consistency() does, on all ranks.
void verify_along_tree(MessageLinks& links, const CollectiveSignature& local, const Deadline& deadline);

}  // namespace convoy::dist
