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

std::unique_ptr<dist::Communicator> make_here(const dist::CommOptions& options) {
  const dist::RankInfo& info = group->info();
  const auto exchange = [](const std::string& text) { return group->all_gather(text); };
  return dist::make_nccl_communicator(
      dist::make_shm_communicator(info.rank, info.world_size, exchange, {.comm = options}),
      Device::cuda(shares_gpu ? 0 : info.local_rank), options);
}

class NcclRanks : public ::testing::TestWithParam<ConformanceCase> {
 protected:
  /// The first communicator of a process takes longest: NCCL initializes itself and loads its kernels.
  static void SetUpTestSuite() {
    {
      const auto comm = make_here({.timeout_seconds = 60});
      DeviceValues<float> data(*comm, {1.0F});
      comm->all_reduce(data.view());
      comm->finish();
    }
    group->barrier();
  }
};

TEST_P(NcclRanks, Conform) {
  if (group->info().world_size < GetParam().min_ranks) GTEST_SKIP() << "needs more ranks of this program";
  run_cases({&GetParam(), 1}, group->info().world_size, make_here, [] { group->barrier(); });
}

std::vector<ConformanceCase> all_cases() {
  std::vector<ConformanceCase> all;
  for (const auto& cases : {result_cases(), disagreement_cases(), departure_cases(), nccl_cases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(, NcclRanks, ::testing::ValuesIn(all_cases()),
                         [](const auto& what) { return std::string(what.param.name); });

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
