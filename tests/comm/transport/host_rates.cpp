// The program that scripts/measure_hosts.sh runs under mpirun: measures the flat and the hierarchical
// all-reduce of a ResNet-18's gradients, in time and in bytes sent through this host's network interface
// `cable`. Not a test.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "convoy/comm/cluster/hierarchical/hierarchical_communicator.h"
#include "convoy/comm/transport/mpi/mpi_communicator.h"
#include "convoy/kernels/base/error.h"

namespace {

namespace dist = convoy::dist;

constexpr std::int64_t kCount = 11'173'962;  // f32, 44.7 MB
constexpr int kRounds = 9;

double bytes_sent() {
  double bytes = 0;
  std::ifstream("/sys/class/net/cable/statistics/tx_bytes") >> bytes;
  return bytes;
}

struct Round {
  double ms;
  double megabytes;
};

Round measure(dist::Communicator& comm, std::vector<float>& data) {
  comm.barrier();
  const double sent = bytes_sent();
  const auto begin = std::chrono::steady_clock::now();
  comm.all_reduce({data.data(), {kCount}, convoy::DType::f32});
  comm.barrier();
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
  return {ms.count(), (bytes_sent() - sent) / 1e6};
}

void print(const std::string& name, std::vector<Round> rounds) {
  std::sort(rounds.begin(), rounds.end(), [](const Round& a, const Round& b) { return a.ms < b.ms; });
  std::printf("%-8s  %6.0f ms  (%.0f to %.0f, %zu rounds)  %6.1f MB from host 0\n", name.c_str(),
              rounds[rounds.size() / 2].ms, rounds.front().ms, rounds.back().ms, rounds.size(),
              rounds[rounds.size() / 2].megabytes);
}

}  // namespace

int main() {
  try {
    const auto rendezvous = convoy::dist::Rendezvous::init();
    const auto flat = convoy::dist::make_mpi_communicator(*rendezvous);
    const auto hierarchical = convoy::dist::make_hierarchical_communicator(*rendezvous);
    std::vector<float> data(kCount, 0.0F);
    std::vector<Round> by_flat, by_hierarchical;
    for (int round = 0; round < kRounds; ++round) {
      by_flat.push_back(measure(*flat, data));
      by_hierarchical.push_back(measure(*hierarchical, data));
    }
    if (rendezvous->info().rank == 0) {
      print(flat->name(), by_flat);
      print(hierarchical->name(), by_hierarchical);
    }
    flat->finish();
    hierarchical->finish();
    return 0;
  } catch (const convoy::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
