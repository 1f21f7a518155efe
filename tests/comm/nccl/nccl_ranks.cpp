// The program that each rank runs in the NCCL tests with processes. Ranks of one host rendezvous by RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT and run all conformance cases. With --share-gpu, all use GPU 0.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/cluster/store/store_rendezvous.h"
#include "convoy/comm/nccl/nccl_communicator.h"
#include "convoy/comm/transport/shm/shm_communicator.h"
#include "convoy/kernels/base/error.h"
#include "tests/comm/device_values.h"
#include "tests/comm/nccl/nccl_cases.h"

namespace convoy::testing {
namespace {

dist::Rendezvous* group = nullptr;
bool shares_gpu = false;

/// Runs `body` on this process's rank. The barrier keeps ranks together: one rank may complete a case long
/// before its peers, which wait for a timeout.
void run_here(int, const dist::CommOptions& options,
              const std::function<void(std::unique_ptr<dist::Communicator>)>& body) {
  const dist::RankInfo& info = group->info();
  const auto exchange = [](const std::string& text) { return group->all_gather(text); };
  body(dist::make_nccl_communicator(
      dist::make_shm_communicator(info.rank, info.world_size, exchange, {.comm = options}),
      Device::cuda(shares_gpu ? 0 : info.local_rank), options));
  group->barrier();
}

class NcclRanks : public ::testing::TestWithParam<ConformanceRun> {
 protected:
  /// The first communicator of a process takes longest: NCCL initializes itself and loads its kernels.
  static void SetUpTestSuite() {
    run_here(0, {.timeout_seconds = 60}, [](std::unique_ptr<dist::Communicator> comm) {
      DeviceValues<float> data(*comm, {1.0F});
      comm->all_reduce(data.view());
      comm->finish();
    });
  }
};

TEST_P(NcclRanks, Conform) {
  if (group->info().world_size < GetParam().what.min_ranks) GTEST_SKIP() << "needs more ranks";
  GetParam().run();
}

std::vector<ConformanceRun> all_runs() {
  return conformance_runs({"nccl", run_here}, {2},
                          {result_cases(), disagreement_cases(), departure_cases(), nccl_cases()});
}

INSTANTIATE_TEST_SUITE_P(, NcclRanks, ::testing::ValuesIn(all_runs()),
                         [](const auto& run) { return run.param.name(); });

}  // namespace
}  // namespace convoy::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  convoy::testing::shares_gpu = argc > 1 && std::string(argv[1]) == "--share-gpu";
  try {
    const auto rendezvous =
        convoy::dist::Rendezvous::init({.init_method = "env", .by_store = convoy::dist::rendezvous_by_store});
    if (convoy::testing::shares_gpu) convoy::dist::let_nccl_share_gpus(rendezvous->info().rank);
    convoy::testing::group = rendezvous.get();
    return RUN_ALL_TESTS();
  } catch (const convoy::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
