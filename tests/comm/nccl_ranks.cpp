// What every process does in the tests of NCCL with ranks that are processes: they meet by RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT, on one host, and run all cases. With --share-gpu all of them use the first
// GPU.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "comm/nccl_communicator.h"
#include "comm/rendezvous.h"
#include "comm/shm_communicator.h"
#include "kernels/runtime/error.h"
#include "tests/comm/nccl_cases.h"

namespace convoy::testing {
namespace {

Rendezvous* meeting = nullptr;
bool shares_gpu = false;

class NcclRanks : public ::testing::TestWithParam<ConformanceRun> {};

TEST_P(NcclRanks, Conform) {
  if (meeting->info().world < GetParam().what.min_ranks) GTEST_SKIP() << "for more ranks";
  GetParam().run();
}

/// The ranks are here already. They begin and end each case together: one may be long done with it while the
/// others wait for a deadline.
void run_here(int, const CommOptions& options,
              const std::function<void(std::unique_ptr<Communicator>)>& body) {
  const RankInfo& info = meeting->info();
  const auto exchange = [](const std::string& text) { return meeting->all_gather(text); };
  body(make_nccl_communicator(make_shm_communicator(info.rank, info.world, exchange, {.comm = options}),
                              Device::cuda(shares_gpu ? 0 : info.local_rank), options));
  meeting->barrier();
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
    const auto rendezvous = convoy::Rendezvous::meet({.where = "env"});
    if (convoy::testing::shares_gpu) convoy::let_nccl_share_gpus(rendezvous->info().rank);
    convoy::testing::meeting = rendezvous.get();
    return RUN_ALL_TESTS();
  } catch (const convoy::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
