// convoy-doctor: the facts that a rank collects about itself, its host and its GPU, the checks of them, and
// the report. The facts of one topic and their checks are in one source.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/device_context.h"

namespace convoy::doctor {

// Facts: plain data, exchanged between ranks as JSON.

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
};

struct LimitFacts {
  std::uint64_t open_files = 0, locked_bytes = 0;  // UINT64_MAX: no limit
  std::uint64_t shm_bytes = 0, shm_free = 0;       // size of /dev/shm; 0 if there is none
  bool has_rdma = false;                           // InfiniBand or similar, which needs locked memory
};

struct GpuRankFacts {
  bool is_built_in = false;
  std::string needs, supports;            // CUDA versions of the build and of the driver
  std::string code;                       // the architectures for which the build has code
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

/// warning: training works, but not well. error: training fails or gives wrong results.
enum class Grade { warning, error };

/// A problem, with what was expected and how to fix it.
struct Finding {
  Grade grade = Grade::warning;
  ExitCode code = ExitCode::peer;  // exit code of the program if this is an error
  std::string found, expected;
  std::string fix;  // commands to type or settings to change
};
using Findings = std::vector<Finding>;

/// Checks launchers, versions of programs and libraries, host names and clocks.
Findings check_launch(const Examination& examination);
/// Checks cores, limits and memory.
Findings check_hosts(const Examination& examination);
/// Checks drivers, visible GPUs and their assignment to ranks.
Findings check_gpus(const Examination& examination);
/// Checks network interfaces and the links between hosts.
Findings check_network(const Examination& examination);
/// Checks the results of the test collectives.
Findings check_collectives(const Examination& examination);
/// Runs all checks above and returns their findings, errors first.
Findings check_all(const Examination& examination);

/// Checks the facts of one rank for reasons why its rendezvous failed.
Findings check_failed_rendezvous(const RankFacts& facts);

/// Returns the exit code of the first error, or ExitCode::ok if there is none.
ExitCode verdict(const Findings& findings);

// Helpers of the checks.

using Ranks = std::vector<const RankFacts*>;
/// Returns the ranks of each host, by node number.
std::map<int, Ranks> by_host(const std::vector<RankFacts>& ranks);
/// Returns a list such as "ranks 0, 1".
std::string rank_list(const Ranks& ranks);
/// Returns whether this is a loopback address or name.
bool is_loopback(const std::string& address);

// Facts about this process and its host (host.cpp).

/// Collects all facts that need no rendezvous, except those about GPUs.
RankFacts examine_host(const dist::Variables& variables);

/// Parses the cpu.max of a control group and returns the CPU quota in cores: 4 for "400000 100000", 0 for no
/// limit.
double parse_cpu_quota(const std::string& text);

/// Formats a sorted list of cores as ranges: "0-3,8".
std::string format_cores(const std::vector<int>& cores);

// GPUs (gpu.cpp).

/// Returns the facts that the driver and the PCI bus provide. Creates no CUDA context.
GpuRankFacts examine_gpus();

/// Opens the GPU of this rank, chosen as in every program, and stores its index and memory in `facts`.
/// Returns nullopt if `device` is "cpu" or no GPU can be used; in the second case `facts.reason` says why.
std::optional<DeviceContext> open_gpu(const std::string& device, const dist::RankInfo& rank,
                                      GpuRankFacts& facts);

/// Returns what is wrong with the value of CUDA_VISIBLE_DEVICES, or "". CUDA ignores everything after the
/// first invalid entry. `installed` is the number of installed GPUs, 0 if unknown.
std::string visible_devices_problem(const std::string& value, int installed);

// The network between hosts (network.cpp): each host listens on all of its addresses and connects to those of
// the others.

/// Returns the addresses of all interfaces that are up, except link-local IPv6 addresses.
std::vector<InterfaceFacts> list_addresses();
/// Returns the names of all interfaces, up or down.
std::vector<std::string> list_interfaces();

/// Listening sockets on every non-loopback address of this host, which reply to a connection with a greeting.
class PortProbes {
 public:
  /// Opens a socket per address on a free port and stores the ports in `interfaces`. An address on which no
  /// socket can be opened keeps port 0.
  explicit PortProbes(std::vector<InterfaceFacts>& interfaces);
  /// Sends `greeting` to all peers that have connected so far. Does not wait for more.
  void reply(const std::string& greeting) const;

 private:
  std::vector<dist::Socket> sockets_;
};

/// Returns the unique greeting of a rank's host. It distinguishes hosts that have the same private address.
std::string greeting_of(const RankFacts& facts);

/// Probes all addresses of all other hosts from each host and returns all links on all ranks. Collective
/// call. `port_probes` is null except on the first rank of each host. Blocks for at most 2 s per address plus
/// 30 s per reply.
std::vector<LinkFacts> probe_links(dist::Rendezvous& rendezvous, const std::vector<RankFacts>& ranks,
                                   const PortProbes* port_probes);

// Test collectives with known results, and their bandwidth (collectives.cpp).

/// Runs an all-gather of the rank numbers and an all-reduce of `elements` f32 values, compares the sums with
/// the expected ones, and measures the mean time of a few more all-reduces. Collective call. Does not throw:
/// an error is returned in CollectiveFacts::error, and the communicator is aborted.
CollectiveFacts try_collectives(dist::Communicator& comm, const DeviceContext& device,
                                std::int64_t elements = 1 << 20);

/// Returns the bytes of the all-reduce divided by its time, in B/s, as nccl-tests defines algbw; 0 if it was
/// not timed.
double algorithm_bandwidth(const CollectiveFacts& facts);
/// Returns the bandwidth per link in B/s, algbw * 2 (n - 1) / n for n ranks, as nccl-tests defines busbw.
double bus_bandwidth(const CollectiveFacts& facts, int world_size);

/// Returns the expected result of the all-gather for this world size: "[0 1 2 3]".
std::string expected_gather(int world_size);

// The report (report.cpp).

/// Formats the facts: versions, then each host with its ranks.
std::string format_facts(const Examination& examination);

/// Formats the all-gather of one rank: "rank 2 on node7, shm: all-gather [0 1 2 3]".
std::string format_gather(const CollectiveFacts& facts);

/// Formats the links between hosts and the bandwidths of the all-reduces.
std::string format_exchanges(const Examination& examination);

/// Formats the findings as a numbered list, or a line that says that there are none.
std::string format_findings(const Findings& findings);

/// Returns facts, links, collectives and findings as JSON, with a schema number.
std::string json_of(const Examination& examination, const Findings& findings);

// Failed jobs (post_mortem.cpp).

/// Reads the flight recorders in `directory`, or in its subdirectory post-mortem if `directory` is the output
/// of a training. Writes timeline.json next to them and returns the report. Throws DataError if there are
/// none, or if one is damaged.
std::string examine_post_mortem(const std::filesystem::path& directory);

}  // namespace convoy::doctor
