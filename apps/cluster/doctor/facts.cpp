#include "convoy/apps/cluster/doctor/facts.h"

namespace convoy::doctor {

// These macros of nlohmann::json define both conversions.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(InterfaceFacts, name, address, network, is_loopback, port)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CpuFacts, processor, machine_cores, cores, quota, memory_bytes,
                                   memory_available, copy_rate)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LimitFacts, open_files, locked_bytes, shm_bytes, shm_free, has_rdma)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuRankFacts, is_built_in, needs, supports, reason, installed, names,
                                   uuids, index, bytes, free_bytes)

namespace whole {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, rank, world_size, local_rank, node, host, host_name, machine,
                                   system, process, parent, met_by, source, program, version, libraries,
                                   variables, clock, cpu, limits, gpu, interfaces, interface_names)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LinkFacts, from, to, from_host, to_host, interface, address, network,
                                   error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CollectiveFacts, rank, host, name, gathered, bytes, seconds, wrong, error)
}  // namespace whole

void to_json(nlohmann::json& json, const RankFacts& facts) { whole::to_json(json, facts); }
void from_json(const nlohmann::json& json, RankFacts& facts) { whole::from_json(json, facts); }
void to_json(nlohmann::json& json, const LinkFacts& facts) { whole::to_json(json, facts); }
void from_json(const nlohmann::json& json, LinkFacts& facts) { whole::from_json(json, facts); }
void to_json(nlohmann::json& json, const CollectiveFacts& facts) { whole::to_json(json, facts); }
void from_json(const nlohmann::json& json, CollectiveFacts& facts) { whole::from_json(json, facts); }

}  // namespace convoy::doctor
