// Tests of the NCCL communicator on emulated GPUs: the general conformance cases and its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "convoy/comm/nccl/nccl_communicator.h"
#include "convoy/comm/nccl/nccl_handle.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/shm/shm_communicator.h"
#include "convoy/comm/transport/thread/thread_communicator.h"
#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "emulator/runtime/emulator.h"
#include "tests/comm/device_values.h"
#include "tests/comm/nccl/counting_communicator.h"
#include "tests/comm/nccl/nccl_cases.h"
#include "tests/comm/process_size.h"
#include "tests/comm/rank_threads.h"
#include "tests/comm/rendezvous_ranks.h"
#include "tests/comm/transport/conformance.h"
#include "tests/cuda_emulator/nccl/nccl_emulation.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/gpu.h"
#include "tests/testing/support/notice.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/rank_processes.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Body = std::function<void(std::unique_ptr<dist::Communicator>)>;

constexpr double kShort = 2;      // timeout in seconds
constexpr double kLongWait = 60;  // long enough that only a failing test waits for it

/// Runs `body` on ranks that are threads, each with its own GPU, with a function that makes its
/// communicators.
void run_gpu_threads(int ranks, const std::function<void(dist::Rendezvous&, const MakeCommunicator&)>& body) {
  run_rank_threads(ranks, [&](dist::Rendezvous& rendezvous) {
    body(rendezvous, [&](const dist::CommOptions& options) {
      return dist::make_nccl_communicator(dist::make_thread_communicator(rendezvous, options),
                                          DeviceContext::create_cuda(rendezvous.info().rank), options);
    });
  });
}

void run_threads(int ranks, const dist::CommOptions& options, const Body& body) {
  run_gpu_threads(ranks, [&](auto&, const MakeCommunicator& make) { body(make(options)); });
}

void run_cases_on_threads(int ranks, const auto& body) {
  run_gpu_threads(ranks, [&](dist::Rendezvous& rendezvous, const MakeCommunicator& make) {
    body(make, [&] { rendezvous.barrier(); });
  });
}

const Backend kThreads = {"nccl", [](int ranks, const auto& body) { run_cases_on_threads(ranks, body); }};
const Backend kThreadsAtRandom = {"nccl", [](int ranks, const auto& body) {
                                    set_gpu_order(3);
                                    run_cases_on_threads(ranks, body);
                                    set_gpu_order(0);
                                  }};

class NcclTest : public GpuTest {
 protected:
  void TearDown() override {
    EXPECT_EQ(emulator::nccl_communicators(), 0);
    GpuTest::TearDown();
  }
};

class NcclConformance : public NcclTest, public ::testing::WithParamInterface<ConformanceRun> {};
TEST_P(NcclConformance, Conforms) { GetParam().run(); }

const auto run_name = [](const auto& run) { return run.param.name(); };
INSTANTIATE_TEST_SUITE_P(Threads, NcclConformance,
                         ::testing::ValuesIn(conformance_runs(kThreads, {1, 2, 3, 4},
                                                              {result_cases(), disagreement_cases(),
                                                               departure_cases(), nccl_cases()})),
                         run_name);
INSTANTIATE_TEST_SUITE_P(ThreadsInRandomOrder, NcclConformance,
                         ::testing::ValuesIn(conformance_runs(kThreadsAtRandom, {1, 2, 4},
                                                              {result_cases(), nccl_cases()})),
                         run_name);

using NcclCommunicator = NcclTest;

TEST_F(NcclCommunicator, ComparesAllSignaturesWithCheckAlways) {
  run_threads(2, {.timeout_seconds = kLongWait, .check_always = true},
              [](std::unique_ptr<dist::Communicator> comm) {
                run_compared_collectives(*comm);
                DeviceValues<float> data(*comm, std::vector<float>(16, 1.0F));
                const View view = data.view();
                comm->all_reduce(View{view.data, {16 - comm->rank()}, view.dtype});
                EXPECT_THAT(message_of<PeerError>([&] { comm->check_errors(); }),
                            AllOf(HasSubstr("all-reduce 32 (16 f32)"), HasSubstr("all-reduce 32 (15 f32)")));
              });
}

TEST_F(NcclCommunicator, ReportsErrorsOfNccl) {
  run_threads(2, {.timeout_seconds = kLongWait}, [](std::unique_ptr<dist::Communicator> comm) {
    run_compared_collectives(*comm);
    comm->barrier();
    if (comm->rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // rank 0 is waiting by now
      emulator::break_nccl(1, ncclRemoteError);
    }
    DeviceValues<float> data(*comm, {1.0F});
    comm->all_reduce(data.view());
    wait_for(*comm);
    EXPECT_THAT(message_of<PeerError>([&] { comm->check_errors(); }),
                HasSubstr("remote process exited or there was a network error (6): broken by the test"));
    EXPECT_THROW(comm->barrier(), PeerError);
  });
}

TEST_F(NcclCommunicator, PollsUntilSlowCallsAreComplete) {
  for (const int polls : {0, 1, 40}) {
    emulator::set_nccl_polls(polls);
    conformance_runs(kThreads, {2}, {nccl_cases().first(1)}).front().run();
  }
  emulator::set_nccl_polls(3);
}

/// Ranks exchange messages when the communicator is created and finished. Between, only the comparison of the
/// first signatures does.
TEST_F(NcclCommunicator, ExchangesNoMessageWhileTraining) {
  std::atomic<int> launches = 0;
  std::barrier together(2);
  run_rank_threads(2, [&](dist::Rendezvous& rendezvous) {
    const dist::CommOptions options{.timeout_seconds = kLongWait};
    const auto comm = dist::make_nccl_communicator(
        std::make_unique<CountingCommunicator>(dist::make_thread_communicator(rendezvous, options), launches),
        DeviceContext::create_cuda(rendezvous.info().rank), options);
    run_compared_collectives(*comm);
    comm->barrier();
    together.arrive_and_wait();
    const int before = launches;
    DeviceValues<float> data(*comm, {1.0F});
    for (int step = 0; step < 50; ++step) {
      comm->all_reduce(data.view());
      comm->context().synchronize();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(launches, before);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the training stands still
    EXPECT_EQ(launches, before);
    together.arrive_and_wait();
    comm->finish();
  });
  EXPECT_LT(launches, 2 * 60);  // 33 of them compare the all-reduces and the first barriers
}

/// The compute stream need not wait for the note of a completion. A capture shows what an event comes after: it
/// fails unless the captured stream waits, directly or not, for all that the other streams do.
TEST_F(NcclCommunicator, RecordsTheSumBeforeItsCompletionIsNoted) {
  run_threads(1, {.timeout_seconds = kLongWait}, [](std::unique_ptr<dist::Communicator> comm) {
    const DeviceContext gpu = comm->context();
    DeviceValues<float> data(*comm, {3.0F});
    Event ready(gpu.stream()), done(gpu.stream()), all(gpu.stream());
    const auto capture = [&](const Event& awaited) {
      return std::make_unique<CudaGraph>(gpu, [&] {
        ready.record(gpu.stream());
        ready.wait(comm->stream());
        comm->all_reduce(data.view(), &done);
        all.record(comm->stream());
        awaited.wait(gpu.stream());
      });
    };
    EXPECT_THAT(message_of<CaptureError>([&] { capture(done); }),
                HasSubstr("does not wait for the captured work of another stream"));
    auto graph = capture(all);
    graph->replay();
    EXPECT_EQ(data.read(*comm)[0], 3.0F);
    graph.reset();
    comm->finish();
  });
}

TEST_F(NcclCommunicator, LimitsThreadBlocksOfCollectives) {
  for (const int ctas : {4, 0}) {
    run_threads(2, {.timeout_seconds = kLongWait, .nccl_ctas = ctas},
                [&](std::unique_ptr<dist::Communicator> comm) {
                  EXPECT_EQ(emulator::nccl_max_ctas(), ctas > 0 ? ctas : NCCL_CONFIG_UNDEF_INT);
                  comm->split(0)->finish();
                  EXPECT_EQ(emulator::nccl_max_ctas(), ctas > 0 ? ctas : NCCL_CONFIG_UNDEF_INT)
                      << "a part of the ranks";
                  comm->finish();
                });
  }
  EXPECT_THAT(message_of<PeerError>([] {
                dist::make_nccl_communicator(dist::make_self_communicator(), DeviceContext::create_cuda(0),
                                             {.nccl_ctas = 65});
              }),
              HasSubstr("maxCTAs is not from 1 to 64"));
}

TEST_F(NcclCommunicator, DeterministicDevicesSumAroundARing) {
  const auto make = [](bool deterministic) {
    return dist::make_nccl_communicator(dist::make_self_communicator(),
                                        DeviceContext::create_cuda(0, {.deterministic = deterministic}));
  };
  unsetenv("NCCL_ALGO");
  make(false)->finish();
  EXPECT_EQ(getenv("NCCL_ALGO"), nullptr);
  make(true)->finish();
  EXPECT_STREQ(getenv("NCCL_ALGO"), "Ring");
  setenv("NCCL_ALGO", "NVLS,Tree", 1);
  EXPECT_EQ(
      message_of<UsageError>([&] { make(true); }),
      "NCCL communicator: found NCCL_ALGO=NVLS,Tree with a deterministic device, expected Ring, or none");
  make(false)->finish();
  unsetenv("NCCL_ALGO");
}

/// A communicator of one rank on GPU 1.
struct LocalHandle {
  explicit LocalHandle(double abort_seconds = kLongWait) : handle(1, abort_seconds) {
    ncclUniqueId id{};
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    handle.init({id}, 0, 1, dist::Deadline(kLongWait));
  }
  dist::NcclHandle handle;
};

TEST_F(NcclCommunicator, BeginsWithSeveralIdsInALargeJob) {
  EXPECT_EQ(dist::NcclHandle::ids_for(128), 1U);
  EXPECT_EQ(dist::NcclHandle::ids_for(129), 2U);
  std::vector<ncclUniqueId> ids(2);
  for (ncclUniqueId& id : ids) EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const int before = emulator::nccl_scalable_inits();
  dist::NcclHandle handle(1);
  handle.init(ids, 0, 1, dist::Deadline(kLongWait));
  EXPECT_EQ(emulator::nccl_scalable_inits(), before + 1);
  handle.destroy(dist::Deadline(kLongWait));
}

/// ncclCommAbort may hang. The calls of all threads return nevertheless.
TEST_F(NcclCommunicator, HangingAbortBlocksNoCall) {
  const Notice begun, released;
  emulator::set_nccl_abort_hook([&] {
    begun.notify();
    EXPECT_TRUE(released.await());
  });
  {
    LocalHandle local;
    local.handle.abort();
    EXPECT_TRUE(begun.await());
    EXPECT_EQ(message_of<PeerError>([&] {
                local.handle.call([](ncclComm_t) { return ncclSuccess; }, dist::Deadline(kLongWait));
              }),
              "the NCCL communicator was aborted or destroyed");
    local.handle.check();
    local.handle.abort();
    released.notify();
  }
  emulator::set_nccl_abort_hook(nullptr);
}

std::unique_ptr<CudaGraph> capture_sum(dist::NcclHandle& handle, const DeviceContext& gpu, const View& data) {
  return std::make_unique<CudaGraph>(gpu, [&] {
    const auto sum = [&](ncclComm_t comm) {
      const cudaStream_t stream = std::get<std::reference_wrapper<CudaStream>>(gpu.stream()).get().handle();
      return ncclAllReduce(data.data, data.data, 1, ncclFloat32, ncclSum, comm, stream);
    };
    handle.call(sum, dist::Deadline(kLongWait));
  });
}

/// NCCL waits for the end of the graph. Its owner may be the thread that aborts.
TEST_F(NcclCommunicator, NoCallAwaitsTheEndOfAGraph) {
  emulator::reset();  // forgets contexts
  const DeviceContext gpu = DeviceContext::create_cuda(1);
  const Tensor data = Tensor::zeros({1}, DType::f32, gpu);
  auto local = std::make_unique<LocalHandle>(0.01);
  auto graph = capture_sum(local->handle, gpu, data.view());
  expect_not_to_await_end_of(graph, [&] {
    EXPECT_THAT(message_of<PeerError>([&] { local->handle.destroy(dist::Deadline(0.05)); }),
                HasSubstr("waited 0.05 s for other ranks, or for the end of CUDA graphs"));
    local->handle.abort();
    EXPECT_THROW(local->handle.destroy(dist::Deadline(kLongWait)), PeerError);
    local.reset();
  });
  EXPECT_EQ(emulator::nccl_communicators(), 1);
  graph.reset();
  while (emulator::nccl_communicators() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(emulator::contexts(), std::set<int>{1});
}

TEST_F(NcclCommunicator, DestructorFreesCommunicatorIfGraphsHaveEnded) {
  const DeviceContext gpu = DeviceContext::create_cuda(1);
  const Tensor data = Tensor::zeros({1}, DType::f32, gpu);
  {
    LocalHandle local;
    capture_sum(local.handle, gpu, data.view())->replay();
  }
  EXPECT_EQ(emulator::nccl_communicators(), 0);
}

TEST_F(NcclCommunicator, CreationFailsWhenRankIsMissing) {
  auto controls = dist::make_thread_communicators(2, {.timeout_seconds = kShort});
  EXPECT_THAT(message_of<PeerError>([&] {
                dist::make_nccl_communicator(std::move(controls[0]), DeviceContext::create_cuda(0),
                                             {.timeout_seconds = kShort});
              }),
              HasSubstr("waited 2 s for rank 1"));
}

TEST_F(NcclCommunicator, AThousandLeaveNothing) {
  constexpr int kRanks = 2, kKinds = 2;  // half of the communicators are parts of others
  expect_no_growth(1000 / (kRanks * kKinds), [] {
    run_threads(kRanks, {.timeout_seconds = kLongWait}, [](std::unique_ptr<dist::Communicator> comm) {
      const auto part = comm->split(0);
      DeviceValues<float> data(*comm, {1.0F});
      part->all_reduce(data.view());
      EXPECT_EQ(data.read(*part)[0], 2.0F);
      part->finish();
      comm->finish();
    });
  });
}

TEST_F(NcclCommunicator, RejectsCpuAndSharedGpu) {
  EXPECT_THAT(message_of<UsageError>([] {
                dist::make_nccl_communicator(std::move(dist::make_thread_communicators(1)[0]), Device::cpu());
              }),
              HasSubstr("found device cpu"));
  std::vector<std::thread> threads;
  for (auto& control : dist::make_thread_communicators(2))
    threads.emplace_back([own = std::move(control)]() mutable {
      EXPECT_THAT(message_of<PeerError>(
                      [&] { dist::make_nccl_communicator(std::move(own), DeviceContext::create_cuda(0)); }),
                  HasSubstr("Duplicate GPU detected"));
    });
  for (std::thread& thread : threads) thread.join();
}

/// Ranks are forked processes. They are forked before this process has threads.
using NcclProcesses = NcclTest;

std::unique_ptr<dist::Communicator> make(const ForkedRank& rank, int gpu, const dist::CommOptions& options) {
  return dist::make_nccl_communicator(
      dist::make_shm_communicator(rank.rank, rank.size, rank.exchange, {.comm = options}),
      DeviceContext::create_cuda(gpu), options);
}

/// Runs tests/comm/nccl/nccl_ranks.cpp as on a real machine: two processes share one GPU.
std::vector<ProcessResult> run_nccl_ranks(const std::string& filter,
                                          std::map<std::string, std::string> environment = {}) {
  environment.insert(
      {{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(free_port())}});
  std::vector<std::unique_ptr<Process>> ranks;
  for (const char* rank : {"0", "1"}) {
    environment["RANK"] = rank;
    ranks.push_back(std::make_unique<Process>(
        std::vector<std::string>{CONVOY_NCCL_RANKS, "--share-gpu", "--gtest_filter=" + filter},
        ProcessOptions{.environment = environment}));
  }
  std::vector<ProcessResult> results;
  for (const auto& rank : ranks) results.push_back(rank->wait());
  return results;
}

TEST_F(NcclProcesses, ConformOnOneGpu) {
  for (const ProcessResult& result : run_nccl_ranks("*")) {
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("NcclRanks.Conform/AllReduceSums"));
  }
}

/// Processes that share a real GPU need seconds to connect.
TEST_F(NcclProcesses, ConformIfTheShortTimeoutSufficesToConnect) {
  const auto exit_codes = [](const char* timeout) {
    std::vector<int> codes;
    for (const ProcessResult& result :
         run_nccl_ranks("*NamesRankThatDoesNotReplay",
                        {{"CONVOY_EMULATED_NCCL_CONNECTION", "600"}, {"CONVOY_SHORT_TIMEOUT", timeout}}))
      codes.push_back(result.exit_code);
    return codes;
  };
  EXPECT_THAT(exit_codes("2"), ElementsAre(0, 0));
  EXPECT_THAT(exit_codes("0.3"), ElementsAre(1, 1));
}

/// A stopped rank cannot tell its progress.
TEST_F(NcclProcesses, NameStoppedRankAtTheTimeout) {
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    const auto comm = make(rank, rank.rank, {.timeout_seconds = kShort});
    run_compared_collectives(*comm);
    const std::vector<std::string> processes = rank.exchange(std::to_string(getpid()));
    if (rank.rank == 1) raise(SIGSTOP);  // killed by rank 0 below
    DeviceValues<float> data(*comm, {1.0F});
    comm->all_reduce(data.view());
    wait_for(*comm);
    EXPECT_THAT(message_of<PeerError>([&] { comm->check_errors(); }),
                AllOf(HasSubstr("all-reduce 32 (1 f32) on rank "), HasSubstr("waited 2 s for rank 1")));
    if (rank.rank == 0) kill(std::stoi(processes[1]), SIGKILL);
  });
}

TEST_F(NcclProcesses, DetectPeerDeathWhileGpusWait) {
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    const auto comm = make(rank, rank.rank, {.timeout_seconds = kLongWait});
    for (int i = 0; i < 32; ++i) comm->barrier();
    if (rank.rank == 1) raise(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    DeviceValues<float> data(*comm, {1.0F});
    comm->all_reduce(data.view());
    wait_for(*comm);
    EXPECT_THAT(message_of<PeerError>([&] { comm->check_errors(); }), HasSubstr("rank 1"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  });
}

}  // namespace
}  // namespace convoy::testing
