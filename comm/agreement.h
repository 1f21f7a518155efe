// Whether all ranks do the same thing with the same numbers. The host waits; every rank throws the same
// error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "engine/nn/module.h"

namespace convoy {

/// Something that must be equal on every rank.
struct Claim {
  std::string name;   // "--lr", "fc.weight"
  std::string value;  // "0.1", "f32 [10, 512]"
};

/// A claim a parameter and buffer: its shape and type.
std::vector<Claim> claims_of(const Module& model);

/// UsageError that names the ranks whose claims are not rank 0's, and the first differences: "rank 2 has
/// --lr 0.2, rank 0 has 0.1".
void check_same_claims(Communicator& comm, const std::vector<Claim>& mine);

/// PeerError that names a rank and its first parameter with other bits than rank 0's. `when`: "after step
/// 12".
void check_replicas(Communicator& comm, const std::vector<NamedParameter>& parameters, std::string_view when);

}  // namespace convoy
