// Tests of the emulated NCCL: two ranks with one GPU each, driven by one thread. No call blocks.
#include <nccl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <thread>

#include "tests/cuda_emulator/nccl/nccl_emulation.h"
#include "tests/cuda_emulator/tests/fixture.h"

namespace convoy::emulator {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Returns the list as a vector. A plain Numbers<float>(gpu, {1}) could mean an uninitialized array of one
/// element.
std::vector<float> values(std::initializer_list<float> list) { return list; }

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}

/// A rank whose GPU has the same number.
struct Rank {
  explicit Rank(int number) : gpu(number) {}

  ncclResult_t init(const ncclUniqueId& id, int rank, int ranks = 2) {
    gpu.stream.make_current();
    ncclConfig_t config = non_blocking();
    return ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
  }
  ncclResult_t sum(const Numbers<float>& data, std::size_t count) {
    return ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, comm, gpu.stream.handle());
  }

  Gpu gpu;
  ncclComm_t comm = nullptr;
};

class EmulatedNccl : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    set_nccl_polls(3);
    for (int rank = 0; rank < 2; ++rank) ranks.push_back(std::make_unique<Rank>(rank));
  }
  void TearDown() override {
    for (const auto& rank : ranks)
      if (rank->comm != nullptr) ncclCommAbort(rank->comm);
    ranks.clear();
    EXPECT_EQ(nccl_communicators(), 0);
    EmulatorTest::TearDown();
  }

  Rank& rank(std::size_t number) { return *ranks[number]; }

  void begin() {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ASSERT_EQ(rank(0).init(id, 0), ncclInProgress);
    ASSERT_EQ(rank(1).init(id, 1), ncclInProgress);
    wait();
  }
  /// Polls until the calls of both ranks are complete.
  void wait() {
    for (const auto& one : ranks)
      while (state_of(one->comm) == ncclInProgress) {
      }
    for (const auto& one : ranks) ASSERT_EQ(state_of(one->comm), ncclSuccess);
  }

  std::vector<std::unique_ptr<Rank>> ranks;
};

TEST_F(EmulatedNccl, InitializesWhenAllRanksHaveJoinedAndPolled) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  rank(0).init(id, 0);
  for (int poll = 0; poll < 10; ++poll) EXPECT_EQ(state_of(rank(0).comm), ncclInProgress);
  rank(1).init(id, 1);
  for (const auto& one : ranks) {
    for (int poll = 0; poll < 3; ++poll) EXPECT_EQ(state_of(one->comm), ncclInProgress);
    EXPECT_EQ(state_of(one->comm), ncclSuccess);
  }
}

TEST_F(EmulatedNccl, LaunchesOnlyWhenPolled) {
  begin();
  const Numbers<float> a(rank(0).gpu, values({1, 2})), b(rank(1).gpu, values({10, 20}));
  EXPECT_EQ(rank(0).sum(a, 2), ncclInProgress);
  EXPECT_EQ(rank(1).sum(b, 2), ncclInProgress);
  EXPECT_THAT(a.values(), ElementsAre(1, 2)) << "not polled yet";
  wait();
  EXPECT_THAT(a.values(), ElementsAre(11, 22));
  EXPECT_THAT(b.values(), ElementsAre(11, 22));
}

TEST_F(EmulatedNccl, SupportsInPlaceAndSeparateBuffers) {
  begin();
  const Numbers<float> a(rank(0).gpu, values({1, 2, 0, 0})), b(rank(1).gpu, values({0, 0, 3, 4}));
  const auto gather = [](Rank& of, const Numbers<float>& data, int place) {
    return ncclAllGather(data.data() + 2 * place, data.data(), 2, ncclFloat32, of.comm,
                         of.gpu.stream.handle());
  };
  EXPECT_EQ(gather(rank(0), a, 0), ncclInProgress);
  EXPECT_EQ(gather(rank(1), b, 1), ncclInProgress);
  wait();
  EXPECT_THAT(a.values(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(b.values(), ElementsAre(1, 2, 3, 4));
  const auto scatter = [](Rank& of, const Numbers<float>& data, int place) {
    return ncclReduceScatter(data.data(), data.data() + 2 * place, 2, ncclFloat32, ncclSum, of.comm,
                             of.gpu.stream.handle());
  };
  EXPECT_EQ(scatter(rank(0), a, 0), ncclInProgress);
  EXPECT_EQ(scatter(rank(1), b, 1), ncclInProgress);
  wait();
  EXPECT_THAT(a.values(), ElementsAre(2, 4, 3, 4));
  EXPECT_THAT(b.values(), ElementsAre(1, 2, 6, 8));
  const Numbers<float> c(rank(1).gpu, 4);
  EXPECT_EQ(ncclBroadcast(a.data(), a.data(), 4, ncclFloat32, 0, rank(0).comm, rank(0).gpu.stream.handle()),
            ncclInProgress);
  EXPECT_EQ(ncclBroadcast(nullptr, c.data(), 4, ncclFloat32, 0, rank(1).comm, rank(1).gpu.stream.handle()),
            ncclInProgress);
  wait();
  EXPECT_THAT(c.values(), ElementsAre(2, 4, 3, 4));
}

TEST_F(EmulatedNccl, SupportsDataOfManyChunks) {
  begin();
  constexpr std::size_t kCount = 300000;
  const Numbers<float> a(rank(0).gpu, std::vector<float>(kCount, 1)),
      b(rank(1).gpu, std::vector<float>(kCount, 2));
  rank(0).sum(a, kCount);
  rank(1).sum(b, kCount);
  wait();
  EXPECT_THAT(a.values(), Each(3));
  EXPECT_THAT(b.values(), Each(3));
}

TEST_F(EmulatedNccl, DoesNotWaitWithoutElements) {
  begin();
  const Numbers<float> a(rank(0).gpu, values({1}));
  EXPECT_EQ(rank(0).sum(a, 0), ncclSuccess);
  rank(0).gpu.stream.synchronize();
}

TEST_F(EmulatedNccl, HangsOnMismatchUntilAborted) {
  begin();
  const Numbers<float> a(rank(0).gpu, values({1, 2})), b(rank(1).gpu, values({10, 20}));
  rank(0).sum(a, 2);
  rank(1).sum(b, 1);
  wait();  // the launch itself succeeds
  CudaEvent end(0);
  rank(0).gpu.stream.record(end);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(end.reached());
  EXPECT_EQ(ncclCommAbort(std::exchange(rank(0).comm, nullptr)), ncclSuccess);
  end.wait();
  EXPECT_THAT(a.values(), ElementsAre(1, 2));
}

TEST_F(EmulatedNccl, RunsWithoutHostWait) {
  const ScopedSettings settings(with(Streams::random, 5));
  begin();
  const Numbers<float> a(rank(0).gpu, values({1, 2})), b(rank(1).gpu, values({10, 20}));
  rank(0).sum(a, 2);
  rank(1).sum(b, 2);
  wait();
  CudaEvent end(1);
  rank(1).gpu.stream.record(end);
  while (!end.reached()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_THAT(b.values(), ElementsAre(11, 22));
}

TEST_F(EmulatedNccl, CapturesOnlyCompletedCalls) {
  begin();
  const std::uint64_t before = nccl_collectives();
  const Numbers<float> a(rank(0).gpu, values({1})), b(rank(1).gpu, values({2}));
  const auto capture = [&](Rank& of, const Numbers<float>& data, bool polls, cudaGraph_t& graph) {
    const cudaStream_t stream = of.gpu.stream.handle();
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_EQ(of.sum(data, 1), ncclInProgress);
    while (polls && state_of(of.comm) == ncclInProgress) {
    }
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  };
  std::array<cudaGraph_t, 2> graphs{};
  std::array<cudaGraphExec_t, 2> executables{};
  capture(rank(0), a, true, graphs[0]);
  capture(rank(1), b, true, graphs[1]);
  for (std::size_t i = 0; i < 2; ++i) CUDA_CHECK(cudaGraphInstantiate(&executables[i], graphs[i], 0));
  for (int replay = 0; replay < 3; ++replay)
    for (std::size_t i = 0; i < 2; ++i)
      CUDA_CHECK(cudaGraphLaunch(executables[i], rank(i).gpu.stream.handle()));
  EXPECT_THAT(a.values(), ElementsAre(12));
  EXPECT_THAT(b.values(), ElementsAre(12));
  EXPECT_EQ(nccl_collectives() - before, 6U);
  for (std::size_t i = 0; i < 2; ++i) {
    CUDA_CHECK(cudaGraphExecDestroy(executables[i]));
    CUDA_CHECK(cudaGraphDestroy(graphs[i]));
  }

  capture(rank(0), a, false, graphs[0]);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) state = state_of(rank(0).comm);
  EXPECT_EQ(state, ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("ended before the collective was launched"));
  CUDA_CHECK(cudaGraphDestroy(graphs[0]));
}

TEST_F(EmulatedNccl, FreesNoCommunicatorWhileAGraphHasItsCollectives) {
  for (const bool finalizes : {true, false}) {
    begin();
    const Numbers<float> a(rank(0).gpu, values({1}));
    const cudaStream_t stream = rank(0).gpu.stream.handle();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_EQ(rank(0).sum(a, 1), ncclInProgress);
    while (state_of(rank(0).comm) == ncclInProgress) {
    }
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (const auto& one : ranks)
      if (finalizes) ncclCommFinalize(one->comm);
    // Aborts, or waits for the end of the finalization.
    std::future<ncclResult_t> freed = std::async(std::launch::async, [&] {
      if (!finalizes) return ncclCommAbort(rank(0).comm);
      while (state_of(rank(0).comm) == ncclInProgress)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return ncclCommDestroy(rank(0).comm);
    });
    const auto has_waited = [&] {
      return freed.wait_for(std::chrono::milliseconds(30)) == std::future_status::timeout;
    };
    EXPECT_TRUE(has_waited());
    CUDA_CHECK(cudaGraphDestroy(graph));
    EXPECT_TRUE(has_waited()) << "for the instantiated graph";
    CUDA_CHECK(cudaGraphExecDestroy(executable));
    EXPECT_EQ(freed.get(), ncclSuccess);
    rank(0).comm = nullptr;
    EXPECT_EQ(ncclCommAbort(std::exchange(rank(1).comm, nullptr)), ncclSuccess);
  }
}

TEST_F(EmulatedNccl, TakesTimeToConnect) {
  Settings slow = kTwoGpus;
  slow.nccl_connection_ms = 100;
  const ScopedSettings settings(slow);
  const auto ms_of = [](const auto& action) {
    const auto start = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  EXPECT_GE(ms_of([&] { begin(); }), 100);
  const Numbers<float> a(rank(0).gpu, values({1})), b(rank(1).gpu, values({2}));
  const auto sum = [&] {
    rank(0).sum(a, 1);
    rank(1).sum(b, 1);
  };
  EXPECT_GE(ms_of([&] {
              sum();
              wait();
            }),
            100);
  sum();
  for (const auto& one : ranks) {
    for (int poll = 0; poll < 3; ++poll) EXPECT_EQ(state_of(one->comm), ncclInProgress);
    EXPECT_EQ(state_of(one->comm), ncclSuccess) << "the ranks are connected";
  }
}

TEST_F(EmulatedNccl, RejectsCallsInWrongOrder) {
  const Numbers<float> a(rank(0).gpu, values({1}));
  EXPECT_EQ(rank(0).sum(a, 1), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("null"));
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  rank(0).init(id, 0);
  EXPECT_EQ(rank(0).sum(a, 1), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("before the previous operation returned ncclSuccess"));
  rank(1).init(id, 1);
  wait();
  EXPECT_EQ(rank(0).sum(a, 1), ncclInProgress);
  EXPECT_EQ(rank(0).sum(a, 1), ncclInvalidArgument);
  EXPECT_EQ(ncclCommFinalize(rank(0).comm), ncclInvalidArgument);
  const Numbers<float> b(rank(1).gpu, values({1}));
  rank(1).sum(b, 1);
  wait();
  EXPECT_EQ(ncclCommDestroy(rank(0).comm), ncclInvalidUsage);

  EXPECT_EQ(ncclCommFinalize(rank(0).comm), ncclInProgress);
  for (int poll = 0; poll < 10; ++poll)
    EXPECT_EQ(state_of(rank(0).comm), ncclInProgress) << "the peer has not finalized";
  EXPECT_EQ(ncclCommDestroy(rank(0).comm), ncclInvalidUsage);
  EXPECT_EQ(ncclCommFinalize(rank(1).comm), ncclInProgress);
  wait();
  EXPECT_EQ(rank(0).sum(a, 1), ncclInvalidArgument);
  for (const auto& one : ranks) {
    const ncclComm_t destroyed = std::exchange(one->comm, nullptr);
    EXPECT_EQ(ncclCommDestroy(destroyed), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(destroyed), ncclInvalidArgument);
    EXPECT_EQ(ncclCommAbort(destroyed), ncclInvalidArgument);
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(destroyed, &state), ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("destroyed or aborted"));
  }
}

TEST_F(EmulatedNccl, RejectsMemoryOfOtherDevices) {
  begin();
  const Numbers<float> local(rank(0).gpu, counting<float>(8)), foreign(rank(1).gpu, counting<float>(8));
  std::array<float, 8> host{};
  const ncclComm_t comm = rank(0).comm;
  const cudaStream_t stream = rank(0).gpu.stream.handle();
  const auto sum = [&](const float* in, float* out, std::size_t count) {
    return ncclAllReduce(in, out, count, ncclFloat32, ncclSum, comm, stream);
  };
  EXPECT_EQ(sum(local.data(), host.data(), 1), ncclInvalidArgument);
  EXPECT_EQ(sum(host.data(), local.data(), 1), ncclInvalidArgument);
  EXPECT_EQ(sum(local.data(), foreign.data(), 1), ncclInvalidArgument);
  EXPECT_EQ(sum(local.data(), local.data(), 9), ncclInvalidArgument) << "past the end";
  EXPECT_EQ(sum(local.data(), local.data() + 1, 4), ncclInvalidArgument) << "overlapping but not in place";
  EXPECT_EQ(ncclAllGather(local.data() + 2, local.data(), 2, ncclFloat32, comm, stream), ncclInvalidArgument)
      << "the place of rank 1";
  EXPECT_EQ(ncclReduceScatter(local.data(), local.data() + 2, 2, ncclFloat32, ncclSum, comm, stream),
            ncclInvalidArgument);
  EXPECT_EQ(ncclBroadcast(local.data(), local.data(), 1, ncclFloat32, 2, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(
      ncclAllReduce(local.data(), local.data(), 1, ncclFloat32, ncclSum, comm, rank(1).gpu.stream.handle()),
      ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(local.data(), local.data(), 1, ncclUint8, ncclSum, comm, stream),
            ncclInvalidArgument);
  EXPECT_EQ(state_of(comm), ncclSuccess) << "nothing was started";
}

TEST_F(EmulatedNccl, RejectsInconsistentRanks) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInvalidArgument)
      << "a blocking communicator";
  config.blocking = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 2, &config), ncclInvalidArgument);
  config.magic = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(rank(0).init(id, 0), ncclInProgress);
  EXPECT_EQ(rank(1).init(id, 0), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("two ranks have number 0"));
  EXPECT_EQ(rank(1).init(id, 1, 3), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("2 and 3"));
  EXPECT_EQ(rank(1).init({}, 1), ncclInvalidArgument);
  EXPECT_EQ(ncclCommAbort(std::exchange(rank(0).comm, nullptr)), ncclSuccess);
  EXPECT_EQ(rank(1).init(id, 1), ncclSystemError);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("has exited"));
}

TEST_F(EmulatedNccl, RejectsTwoRanksOnOneGpu) {
  ranks[1] = std::make_unique<Rank>(0);
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  rank(0).init(id, 0);
  rank(1).init(id, 1);
  for (const auto& one : ranks) EXPECT_EQ(state_of(one->comm), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("Duplicate GPU detected : rank 0 and rank 1"));
}

TEST_F(EmulatedNccl, ReportsInjectedErrors) {
  begin();
  break_nccl(1, ncclRemoteError);
  EXPECT_EQ(state_of(rank(0).comm), ncclSuccess);
  EXPECT_EQ(state_of(rank(1).comm), ncclRemoteError);
  const Numbers<float> b(rank(1).gpu, values({1}));
  EXPECT_EQ(rank(1).sum(b, 1), ncclRemoteError);
}

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                                std::filesystem::directory_iterator()));
}

bool maps_a_rendezvous() {
  std::ifstream maps("/proc/self/maps");
  return std::string(std::istreambuf_iterator<char>(maps), {}).find("memfd:convoy-nccl") != std::string::npos;
}

TEST_F(EmulatedNccl, ReleasesAllResources) {
  const std::size_t files = open_files();
  for (const bool finalizes : {true, false}) {
    begin();
    EXPECT_EQ(open_files(), files) << "the file is closed once all ranks have joined";
    EXPECT_TRUE(maps_a_rendezvous());
    if (finalizes) {
      for (const auto& one : ranks) ncclCommFinalize(one->comm);
      wait();
    }
    for (const auto& one : ranks) {
      const ncclComm_t comm = std::exchange(one->comm, nullptr);
      EXPECT_EQ(finalizes ? ncclCommDestroy(comm) : ncclCommAbort(comm), ncclSuccess);
    }
    EXPECT_FALSE(maps_a_rendezvous());
    EXPECT_EQ(open_files(), files);
  }
}

}  // namespace
}  // namespace convoy::emulator
