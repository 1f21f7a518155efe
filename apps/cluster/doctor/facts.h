// The facts that a rank collects about itself, its host and its GPU: plain data, exchanged between ranks as
// JSON.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace convoy::doctor {

/// An address of a network interface of this host.
struct InterfaceFacts {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.7"
  std::string network;  // "10.0.0.0/24"
  bool is_loopback = false;
  int port = 0;  // port on which the host replies to probes; 0: not probed
};

struct CpuFacts {
  std::string processor;   // "AMD EPYC 9554"
  int machine_cores = 0;   // cores that are online
  std::vector<int> cores;  // cores that this process may use
  double quota = 0;        // CPU quota of the container in cores; 0: no limit
  std::uint64_t memory_bytes = 0, memory_available = 0;
  double copy_rate = 0;  // memory copy rate of this rank in B/s, while all other ranks copy as well
};

struct LimitFacts {
  std::uint64_t open_files = 0, locked_bytes = 0;  // UINT64_MAX: no limit
  std::uint64_t shm_bytes = 0, shm_free = 0;       // size of /dev/shm; 0 if there is none
  bool has_rdma = false;                           // InfiniBand or similar, which needs locked memory
};

struct GpuRankFacts {
  bool is_built_in = false;
  std::string needs, supports;            // CUDA versions of the build and of the driver
  std::string reason;                     // why no GPU can be used
  int installed = 0;                      // NVIDIA GPUs on the PCI bus, visible or not
  std::vector<std::string> names, uuids;  // names and UUIDs of the visible GPUs
  int index = -1;                         // GPU of this rank; -1: none
  std::uint64_t bytes = 0, free_bytes = 0;
};

struct RankFacts {
  int rank = 0, world_size = 1, local_rank = 0, node = 0;
  std::string host;       // unique name for messages
  std::string host_name;  // name that the host itself reports
  std::string machine;    // boot ID of the kernel, which containers share with their machine
  std::string system;     // "Linux 6.1.0, x86_64"
  int process = 0;
  std::string parent;   // name of the parent process
  std::string met_by;   // source of the rendezvous: "mpi", "environment", "tcp", "file", "one process"
  std::string source;   // environment variables that were used for it, and others that were present
  std::string program;  // hash of the executable file
  std::string version;
  std::vector<std::string> libraries;            // "oneDNN 2.6.3"
  std::map<std::string, std::string> variables;  // environment variables that launchers and libraries read
  double clock = 0;                              // seconds since 1970, read right after a barrier
  CpuFacts cpu;
  LimitFacts limits;
  GpuRankFacts gpu;
  std::vector<InterfaceFacts> interfaces;
  std::vector<std::string> interface_names;  // includes interfaces that are down or have no address
};

/// The probe of one address of a host from another host.
struct LinkFacts {
  int from = 0, to = 0;  // nodes
  std::string from_host, to_host;
  std::string interface, address, network;  // of the probed host
  std::string error;                        // "" if the host replied
};

/// The results of the test collectives on one rank.
struct CollectiveFacts {
  int rank = 0;
  std::string host;
  std::string name;      // "shm"
  std::string gathered;  // "[0 1 2 3]"
  std::int64_t bytes = 0;
  double seconds = 0;      // mean time of an all-reduce
  std::int64_t wrong = 0;  // number of wrong sums
  std::string error;       // "" if all collectives completed
};

/// The input of the checks.
struct Examination {
  std::vector<RankFacts> ranks;  // indexed by rank
  std::vector<LinkFacts> links;
  std::vector<CollectiveFacts> collectives;
  std::string device = "auto";  // value of --device
  bool allow_shared_gpu = false;
};

void to_json(nlohmann::json& json, const RankFacts& facts);
void from_json(const nlohmann::json& json, RankFacts& facts);
void to_json(nlohmann::json& json, const LinkFacts& facts);
void from_json(const nlohmann::json& json, LinkFacts& facts);
void to_json(nlohmann::json& json, const CollectiveFacts& facts);
void from_json(const nlohmann::json& json, CollectiveFacts& facts);

}  // namespace convoy::doctor
