#include "tests/comm/nccl_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/gradient_synchronizer.h"
#include "engine/autograd/backward.h"
#include "engine/ops/ops.h"
#include "kernels/elementwise.h"
#include "kernels/runtime/work_graph.h"
#include "tests/comm/device_values.h"
#include "tests/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kShort = 2;  // deadline, in seconds
constexpr double kLong = 60;  // a test that waits for this one has failed

bool is_last(const Communicator& comm) { return comm.rank() == comm.size() - 1; }

/// An all-reduce that is recorded between two events, as a synchronizer's.
std::unique_ptr<WorkGraph> recorded_sum(Communicator& comm, View data) {
  const Stream compute = comm.device().stream();
  StreamEvent ready(compute), done(compute);
  return std::make_unique<WorkGraph>(comm.device(), [&] {
    ready.record(compute);
    ready.wait(comm.stream());
    comm.all_reduce(data);
    done.record(comm.stream());
    done.wait(compute);
  });
}

std::string replay_error(Communicator& comm, WorkGraph& graph) {
  graph.replay();
  comm.device().synchronize();  // which ends
  return message_of<PeerError>([&] { comm.check_errors(); });
}

/// Of a rank that does something else meanwhile.
std::string error_of_another(Communicator& comm) {
  while (true) {
    try {
      comm.check_errors();
    } catch (const PeerError& told) {
      return told.what();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

NamedParameter parameter(const std::string& name, std::int64_t count, const Device& gpu) {
  return {name, Variable(Tensor::full({count}, 1, DType::f32, gpu), true)};
}

void gradients_are_summed_op_by_op_and_recorded(std::unique_ptr<Communicator> comm) {
  const Device gpu = comm->device();
  const NamedParameter a = parameter("a", 1000, gpu), b = parameter("b", 3000, gpu);
  const auto mine = static_cast<float>(comm->rank() + 1);
  const auto all = static_cast<float>(comm->size() * (comm->size() + 1) / 2);
  {
    GradientSynchronizer gradients({a, b}, *comm, {.bucket_mb = 0.001});
    while (comm->size() > 1 && !gradients.settled()) {
      backward(sum(a.variable * mine) + sum(b.variable * (2 * mine)));
      gradients.finish();
      EXPECT_THAT(a.variable.grad().to_vector<float>(), Each(all));
      EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(2 * all));
    }
    const Tensor factors = Tensor::full({1000}, 1, DType::f32, gpu);
    const std::uint64_t before = comm->launched();
    WorkGraph graph(gpu, [&] {
      backward(sum(a.variable * Variable(factors)) + sum(b.variable * mine));
      gradients.finish();
      on(gpu.stream(), [&](auto& s) {
        add(s, a.variable.value().view(), a.variable.grad().view(), a.variable.value().view());
      });
    });
    EXPECT_GT(comm->launched(), before);
    for (int replay = 1; replay <= 3; ++replay) {
      on(gpu.stream(), [&](auto& s) { fill(s, replay * mine, factors.view()); });
      graph.replay();
    }
    EXPECT_THAT(a.variable.value().to_vector<float>(), Each(1 + all * (1 + 2 + 3)));
    EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(all));
    backward(sum(a.variable * mine) + sum(b.variable * mine));  // and op by op again
    gradients.finish();
    EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(all));
  }
  comm->finish();
}

void a_rank_whose_replay_is_missing_is_named(std::unique_ptr<Communicator> comm) {
  DeviceValues<float> data(*comm, {1.0F, 2.0F});
  const auto graph = recorded_sum(*comm, data.view());
  graph->replay();
  comm->device().synchronize();
  EXPECT_EQ(data.read(*comm)[1], 2.0F * static_cast<float>(comm->size()));
  const std::string error = is_last(*comm) ? error_of_another(*comm) : replay_error(*comm, *graph);
  EXPECT_THAT(error, AllOf(HasSubstr("all-reduce 0 (2 f32) on rank "),
                           HasSubstr("waited 2 s for rank " + std::to_string(comm->size() - 1))));
  EXPECT_THROW(comm->barrier(), PeerError);
}

/// The last rank does `leave` while the others wait in a replay.
template <class F>
void expect_told(std::unique_ptr<Communicator> comm, const char* text, const F& leave) {
  DeviceValues<float> data(*comm, {1.0F});
  const auto graph = recorded_sum(*comm, data.view());
  if (is_last(*comm)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return leave(*comm);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(replay_error(*comm, *graph), HasSubstr(text));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

void a_rank_that_leaves_ends_a_replay(std::unique_ptr<Communicator> comm) {
  expect_told(std::move(comm), "left before the end", [](Communicator&) {});
}

void a_rank_that_gives_up_ends_a_replay(std::unique_ptr<Communicator> comm) {
  expect_told(std::move(comm), "no space left", [](Communicator& last) { last.abort("no space left"); });
}

void what_was_not_compared_ends_at_the_deadline(std::unique_ptr<Communicator> comm) {
  pass_the_compared(*comm);
  DeviceValues<float> data(*comm, std::vector<float>(16, 1.0F));
  comm->all_reduce(data.view());
  if (!is_last(*comm)) comm->all_reduce(data.view());
  const std::string error = error_of_another(*comm);
  wait_for(*comm);  // which ends
  EXPECT_THAT(error, AllOf(HasSubstr("all-reduce 33 (16 f32)"), HasSubstr("waited 2 s for rank ")));
}

void a_rank_that_does_not_finish_is_named(std::unique_ptr<Communicator> comm) {
  const std::string error =
      is_last(*comm) ? error_of_another(*comm) : message_of<PeerError>([&] { comm->finish(); });
  EXPECT_THAT(error, HasSubstr("waited 2 s for rank " + std::to_string(comm->size() - 1)));
}

constexpr ConformanceCase kCases[] = {
    {"GradientsAreSummedOpByOpAndRecorded", 1, kLong, gradients_are_summed_op_by_op_and_recorded},
    {"ARankWhoseReplayIsMissingIsNamed", 2, kShort, a_rank_whose_replay_is_missing_is_named},
    {"ARankThatLeavesEndsAReplay", 2, kLong, a_rank_that_leaves_ends_a_replay},
    {"ARankThatGivesUpEndsAReplay", 2, kLong, a_rank_that_gives_up_ends_a_replay},
    {"WhatWasNotComparedEndsAtTheDeadline", 2, kShort, what_was_not_compared_ends_at_the_deadline},
    {"ARankThatDoesNotFinishIsNamed", 2, kShort, a_rank_that_does_not_finish_is_named},
};

}  // namespace

std::span<const ConformanceCase> nccl_cases() { return kCases; }

void pass_the_compared(Communicator& comm) {
  DeviceValues<float> value(comm, {1.0F});
  for (int i = 0; i < 32; ++i) comm.all_reduce(value.view());
  wait_for(comm);
  comm.check_errors();
}

}  // namespace convoy::testing
