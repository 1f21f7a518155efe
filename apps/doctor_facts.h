// What a rank can tell of itself, its host and its GPU: data alone, which travel between ranks as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace convoy::doctor {

/// An address of this host.
struct InterfaceFacts {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.7"
  std::string network;  // "10.0.0.0/24"
  bool is_loopback = false;
  int port = 0;  // at which the host answers there while it is examined; 0: nobody tries
};

struct CpuFacts {
  std::string processor;   // "AMD EPYC 9554"
  int machine_cores = 0;   // that are running
  std::vector<int> cores;  // that this process may use
  double quota = 0;        // cores' worth of time that a container may take; 0: no limit
  std::uint64_t memory_bytes = 0, memory_available = 0;
  double copy_rate = 0;  // bytes a second that this rank copies, while all others do
};

struct LimitFacts {
  std::uint64_t open_files = 0, locked_bytes = 0;  // UINT64_MAX: no limit
  std::uint64_t shm_bytes = 0, shm_free = 0;       // of /dev/shm; 0 bytes where there is none
  bool has_rdma = false;                           // InfiniBand or its like, which locks what it sends
};

struct GpuRankFacts {
  bool is_built_in = false;
  std::string needs, supports;            // CUDA versions: of the build, and of the driver
  std::string reason;                     // where no GPU can be used
  int installed = 0;                      // NVIDIA devices on the bus, visible or not
  std::vector<std::string> names, uuids;  // of those that are visible
  int index = -1;                         // the one that this rank takes; -1: none
  std::uint64_t bytes = 0, free_bytes = 0;
};

struct RankFacts {
  int rank = 0, world = 1, local_rank = 0, node = 0;
  std::string host;       // as in messages: told apart from another of the same name
  std::string host_name;  // as it calls itself
  std::string system;     // "Linux 6.1.0, x86_64"
  int process = 0;
  std::string parent;   // the name of the process that started this one
  std::string met_by;   // "mpi", "environment", "tcp", "file", "one process"
  std::string source;   // which variables won, and which others were there
  std::string program;  // hash of the executable file
  std::string version;
  std::vector<std::string> libraries;            // "oneDNN 2.6.3"
  std::map<std::string, std::string> variables;  // those that launchers and libraries read
  double clock = 0;                              // seconds since 1970, at a moment that all ranks share
  CpuFacts cpu;
  LimitFacts limits;
  GpuRankFacts gpu;
  std::vector<InterfaceFacts> interfaces;
  std::vector<std::string> interface_names;  // also of those that are down or have no address
};

/// From one host to an address of another.
struct LinkFacts {
  int from = 0, to = 0;  // nodes
  std::string from_host, to_host;
  std::string interface, address, network;  // of the host that is to be reached
  std::string error;                        // "" where it answered
};

/// What became of one rank's collectives.
struct CollectiveFacts {
  int rank = 0;
  std::string host;
  std::string name;      // "shm"
  std::string gathered;  // "[0 1 2 3]"
  std::int64_t bytes = 0;
  double seconds = 0;      // of one all-reduce
  std::int64_t wrong = 0;  // sums
  std::string error;       // "" where all were through
};

/// All that is known when findings are made.
struct Examination {
  std::vector<RankFacts> ranks;  // by rank
  std::vector<LinkFacts> links;
  std::vector<CollectiveFacts> collectives;
  std::string device = "auto";  // as the flag says
  bool allow_shared_gpu = false;
};

void to_json(nlohmann::json& json, const RankFacts& facts);
void from_json(const nlohmann::json& json, RankFacts& facts);
void to_json(nlohmann::json& json, const LinkFacts& facts);
void from_json(const nlohmann::json& json, LinkFacts& facts);
void to_json(nlohmann::json& json, const CollectiveFacts& facts);
void from_json(const nlohmann::json& json, CollectiveFacts& facts);

}  // namespace convoy::doctor
