#include "tests/comm/nccl/nccl_cases.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "tests/comm/device_values.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/notice.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kLong = 60;  // timeout in seconds, long enough that only a failing test waits for it

bool is_last(const dist::Communicator& comm) { return comm.rank() == comm.size() - 1; }

/// Returns the text of an error at the timeout, up to the rank that was awaited.
std::string waited_for() { return fmt::format("waited {} s for ", short_timeout()); }

/// Returns a graph of one all-reduce between two events, as GradientSynchronizer enqueues it.
std::unique_ptr<CudaGraph> capture_all_reduce(dist::Communicator& comm, View data) {
  const Stream compute = comm.context().stream();
  Event ready(compute), done(compute);
  return std::make_unique<CudaGraph>(comm.context(), [&] {
    ready.record(compute);
    ready.wait(comm.stream());
    comm.all_reduce(data);
    done.record(comm.stream());
    done.wait(compute);
  });
}

std::string replay_error(dist::Communicator& comm, CudaGraph& graph) {
  graph.replay();
  comm.context().synchronize();  // the abort ends the wait
  return message_of<PeerError>([&] { comm.check_errors(); });
}

/// Polls check_errors() until it throws, and returns the message.
std::string wait_for_error(dist::Communicator& comm) {
  while (true) {
    try {
      comm.check_errors();
    } catch (const PeerError& error) {
      return error.what();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

nn::NamedParameter parameter(const std::string& name, std::int64_t count, const DeviceContext& gpu) {
  return {name, Variable(Tensor::full({count}, 1, DType::f32, gpu), true)};
}

void sums_gradients_eagerly_and_in_a_graph(std::unique_ptr<dist::Communicator> comm) {
  const DeviceContext gpu = comm->context();
  const nn::NamedParameter a = parameter("a", 1000, gpu), b = parameter("b", 3000, gpu);
  const auto local = static_cast<float>(comm->rank() + 1);
  const auto all = static_cast<float>(comm->size() * (comm->size() + 1) / 2);
  {
    dist::GradientSynchronizer gradients({a, b}, *comm, {.bucket_mb = 0.001});
    while (comm->size() > 1 && !gradients.bucket_plan_final()) {
      backward(sum(a.variable * local) + sum(b.variable * (2 * local)));
      gradients.finish();
      EXPECT_THAT(a.variable.grad().to_vector<float>(), Each(all));
      EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(2 * all));
    }
    const Tensor factors = Tensor::full({1000}, 1, DType::f32, gpu);
    const std::uint64_t before = comm->sequence_number();
    CudaGraph graph(gpu, [&] {
      backward(sum(a.variable * Variable(factors)) + sum(b.variable * local));
      gradients.finish();
      on(gpu.stream(), [&](auto& s) {
        kernels::add(s, a.variable.value().view(), a.variable.grad().view(), a.variable.value().view());
      });
    });
    EXPECT_EQ(comm->sequence_number(), before);  // wherever a capture fails, later numbers are equal
    for (int replay = 1; replay <= 3; ++replay) {
      on(gpu.stream(), [&](auto& s) { kernels::fill(s, replay * local, factors.view()); });
      graph.replay();
    }
    EXPECT_THAT(a.variable.value().to_vector<float>(), Each(1 + all * (1 + 2 + 3)));
    EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(all));
    backward(sum(a.variable * local) + sum(b.variable * local));  // eagerly again
    gradients.finish();
    EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(all));
  }
  comm->finish();
}

void sends_bf16_and_sums_missing_gradients_as_zeros(std::unique_ptr<dist::Communicator> comm) {
  const nn::NamedParameter a = parameter("a", 1000, comm->context()),
                           b = parameter("b", 3000, comm->context());
  {
    dist::GradientSynchronizer gradients({a, b}, *comm, {.bucket_mb = 0.001, .grad_dtype = DType::bf16});
    for (int step = 1; step <= 4; ++step) {  // the plan changes after the second
      backward(sum(a.variable * step) + sum(b.variable * (2 * step)));
      gradients.finish();
      EXPECT_THAT(a.variable.grad().to_vector<float>(), Each(step * comm->size()));
      EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(2 * step * comm->size()));
    }
    gradients.finish();  // without a gradient on any rank
    EXPECT_THAT(a.variable.grad().to_vector<float>(), Each(0));
    EXPECT_FALSE(a.variable.has_new_grad());
  }
  comm->finish();
}

void times_buckets_in_each_replay(std::unique_ptr<dist::Communicator> comm) {
  const DeviceContext gpu = comm->context();
  const nn::NamedParameter a = parameter("a", 1000, gpu), b = parameter("b", 3000, gpu);
  {
    dist::GradientSynchronizer gradients({a, b}, *comm,
                                         {.bucket_mb = 0.001, .deterministic = true, .time_buckets = true});
    const auto step = [&] {
      backward(sum(a.variable * 1.0) + sum(b.variable * 2.0));
      gradients.finish();
    };
    step();  // allocates what the capture uses
    CudaGraph graph(gpu, step);
    Event begin = Event::timed(gpu.stream()), end = Event::timed(gpu.stream());
    for (const bool replayed : {false, true, true}) {
      SCOPED_TRACE(replayed);
      begin.record();
      replayed ? graph.replay() : step();
      end.record();
      const std::vector<dist::BucketTime> times = gradients.bucket_times(begin);
      ASSERT_EQ(times.size(), 2U);
      EXPECT_GE(times[0].begin_ms, 0) << "a time of an earlier step";
      EXPECT_GT(times[0].end_ms, times[0].begin_ms);
      EXPECT_GE(times[1].begin_ms, times[0].end_ms);
      EXPECT_GT(times[1].end_ms, times[1].begin_ms);
      EXPECT_LE(times[1].end_ms, elapsed_ms(begin, end));
    }
  }
  comm->finish();
}

/// In a replayed step, too, where no rank has launched the sums.
void names_rank_whose_sum_differs_in_one_bit(std::unique_ptr<dist::Communicator> comm) {
  const DeviceContext gpu = comm->context();
  const nn::NamedParameter a = parameter("a", 1000, gpu), b = parameter("b", 3001, gpu);
  {
    dist::GradientSynchronizer gradients({a, b}, *comm, {.bucket_mb = 0.001, .deterministic = true});
    const auto step = [&] {
      backward(sum(a.variable * 2.0) + sum(b.variable * 3.0));
      gradients.finish();
    };
    step();
    gradients.verify_sums(*comm, "after step 1");
    CudaGraph graph(gpu, step);
    graph.replay();
    gradients.verify_sums(*comm, "after step 2");
    graph.replay();
    if (is_last(*comm)) {
      const Tensor host = b.variable.grad().to(gpu.host());
      host.view().as<std::uint8_t>()[host.bytes() - 1] ^= 0x80;  // of the last element
      b.variable.grad().copy_from(host.to(gpu));
    }
    const std::string error =
        message_of<dist::CorruptionError>([&] { gradients.verify_sums(*comm, "after step 3"); });
    EXPECT_THAT(error, HasSubstr("the sum of bucket 0 differs after step 3: "));  // b is sent first
    EXPECT_THAT(error, HasSubstr("rank " + std::to_string(comm->size() - 1) + " has the checksum "));
    EXPECT_EQ(error.find("the other ranks have ") != std::string::npos, comm->size() > 2) << error;
  }
  comm->finish();
}

void names_rank_that_does_not_replay(std::unique_ptr<dist::Communicator> comm) {
  DeviceValues<float> data(*comm, {1.0F, 2.0F});
  const auto graph = capture_all_reduce(*comm, data.view());
  graph->replay();
  comm->context().synchronize();
  EXPECT_EQ(data.read(*comm)[1], 2.0F * static_cast<float>(comm->size()));
  const std::string error = is_last(*comm) ? wait_for_error(*comm) : replay_error(*comm, *graph);
  EXPECT_THAT(error, AllOf(HasSubstr("all-reduce 0 (2 f32) on rank "),
                           HasSubstr(waited_for() + "rank " + std::to_string(comm->size() - 1))));
  EXPECT_THROW(comm->barrier(), PeerError);
}

/// Calls `leave` on the last rank while the others wait in a replay, and expects `text` in their errors.
template <class F>
void expect_reported(std::unique_ptr<dist::Communicator> comm, const char* text, const F& leave) {
  DeviceValues<float> data(*comm, {1.0F});
  auto graph = capture_all_reduce(*comm, data.view());
  if (is_last(*comm)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the peers are in the replay by now
    return expect_not_to_await_end_of(graph, [&] { leave(*comm); });
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(replay_error(*comm, *graph), HasSubstr(text));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

void ends_replay_when_peer_exits(std::unique_ptr<dist::Communicator> comm) {
  expect_reported(std::move(comm), "exited before finishing", [](dist::Communicator&) {});
}

void ends_replay_when_peer_aborts(std::unique_ptr<dist::Communicator> comm) {
  expect_reported(std::move(comm), "no space left",
                  [](dist::Communicator& last) { last.abort("no space left"); });
}

/// The host, which owns the graph, finds the failure, not the watchdog.
void ends_barrier_when_peer_exits_and_graph_exists(std::unique_ptr<dist::Communicator> comm) {
  DeviceValues<float> data(*comm, {1.0F});
  auto graph = capture_all_reduce(*comm, data.view());
  graph->replay();
  comm->context().synchronize();
  if (is_last(*comm)) return;
  expect_not_to_await_end_of(graph, [&] {
    EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }),
                HasSubstr("rank " + std::to_string(comm->size() - 1)));
  });
}

void ends_uncompared_mismatch_at_timeout(std::unique_ptr<dist::Communicator> comm) {
  run_compared_collectives(*comm);
  DeviceValues<float> data(*comm, std::vector<float>(16, 1.0F));
  comm->all_reduce(data.view());
  if (!is_last(*comm)) comm->all_reduce(data.view());
  const std::string error = wait_for_error(*comm);
  wait_for(*comm);  // the abort ends the wait
  EXPECT_THAT(error, AllOf(HasSubstr("all-reduce 33 (16 f32)"), HasSubstr(waited_for() + "rank ")));
}

void names_rank_that_does_not_finish(std::unique_ptr<dist::Communicator> comm) {
  const std::string error =
      is_last(*comm) ? wait_for_error(*comm) : message_of<PeerError>([&] { comm->finish(); });
  EXPECT_THAT(error, HasSubstr(waited_for() + "rank " + std::to_string(comm->size() - 1)));
}

}  // namespace

std::span<const ConformanceCase> nccl_cases() {
  static const ConformanceCase cases[] = {
      {"SumsGradientsEagerlyAndInAGraph", 1, kLong, sums_gradients_eagerly_and_in_a_graph},
      {"SendsBf16AndSumsMissingGradientsAsZeros", 1, kLong, sends_bf16_and_sums_missing_gradients_as_zeros},
      {"TimesBucketsInEachReplay", 1, kLong, times_buckets_in_each_replay},
      {"NamesRankWhoseSumDiffersInOneBit", 2, kLong, names_rank_whose_sum_differs_in_one_bit},
      {"NamesRankThatDoesNotReplay", 2, short_timeout(), names_rank_that_does_not_replay},
      {"EndsReplayWhenPeerExits", 2, kLong, ends_replay_when_peer_exits},
      {"EndsReplayWhenPeerAborts", 2, kLong, ends_replay_when_peer_aborts},
      {"EndsBarrierWhenPeerExitsAndGraphExists", 2, kLong, ends_barrier_when_peer_exits_and_graph_exists},
      {"EndsUncomparedMismatchAtTimeout", 2, short_timeout(), ends_uncompared_mismatch_at_timeout},
      {"NamesRankThatDoesNotFinish", 2, short_timeout(), names_rank_that_does_not_finish},
  };
  return cases;
}

void expect_not_to_await_end_of(std::unique_ptr<CudaGraph>& graph, const std::function<void()>& action) {
  const Notice ended;
  std::thread guard([&] {
    if (ended.await()) return;
    ADD_FAILURE() << "the call waits until the graph is destroyed";
    graph.reset();
  });
  action();
  ended.notify();
  guard.join();
}

void run_compared_collectives(dist::Communicator& comm) {
  DeviceValues<float> value(comm, {1.0F});
  for (int i = 0; i < 32; ++i) comm.all_reduce(value.view());
  wait_for(comm);
  comm.check_errors();
}

}  // namespace convoy::testing
