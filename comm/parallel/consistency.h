// Checks that all ranks run with the same options and hold the same parameters. One thread at a time uses the
// communicator and the model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/engine/nn/module.h"

namespace convoy::dist {

/// A named value that must be equal on every rank.
struct ConsistencyEntry {
  std::string name;   // "fc.weight", or an option of the program
  std::string value;  // "0.1", "f32 [10, 512]"
};

/// Returns one entry per parameter and buffer of `model`, with its dtype and shape.
std::vector<ConsistencyEntry> consistency_entries_of(const nn::Module& model);

/// Compares the entries of all ranks. Throws the same UsageError on every rank if they differ. The message
/// names the ranks that differ from rank 0 and the first differences: "rank 2 has lr 0.2, rank 0 has 0.1".
/// Collective; blocks until all ranks have sent their entries.
void verify_consistency_entries(Communicator& comm, const std::vector<ConsistencyEntry>& local);

/// Compares a checksum of each tensor between ranks. Throws the same CorruptionError on every rank if they
/// differ. The message contains `what` with the number of the first tensor that differs, such as "the sum of
/// bucket", and `when`. It names the ranks that differ from more than half of all ranks or, if there is no
/// such majority, all ranks. The tensors are on the device of one rank. Collective; blocks until all ranks
/// have sent their checksums.
void verify_equal(Communicator& comm, const std::vector<Tensor>& tensors, std::string_view what,
                  std::string_view when);

/// Does the same with the values of parameters: the message names the first one that differs, and `when`.
void check_replicas(Communicator& comm, const std::vector<nn::NamedParameter>& parameters,
                    std::string_view when);

}  // namespace convoy::dist
