// Tests of CheckpointSaver: checkpoints that are written while the training goes on.
#include "convoy/apps/train/checkpoint_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "convoy/comm/transport/thread/thread_communicator.h"
#include "convoy/kernels/elementwise.h"
#include "tests/testing/support/temp_directory.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy {
namespace {

using testing::TempDirectory;
using testing::TinyTraining;

void fill(const Tensor& tensor, double value) {
  on(tensor.stream(), [&](auto& s) { kernels::fill(s, value, tensor.view()); });
}

io::Snapshot state_of(const TinyTraining& training) {
  io::Snapshot state = io::Snapshot::of(*training.net);
  state.optimizer = optim::state_of(*training.optimizer);
  return state;
}

io::Manifest at_step(std::int64_t step) {
  io::Manifest manifest;
  manifest.step = step;
  return manifest;
}

TEST(CheckpointSaver, WritesTheStateOfTheStartWhileTheTrainingGoesOn) {
  const TempDirectory temp(TempDirectory::in_memory());
  io::CheckpointDirectory checkpoints(temp.path());
  TinyTraining training("adam");
  CheckpointSaver saver(checkpoints, nullptr);
  EXPECT_FALSE(saver.poll());
  std::vector<std::string> hashes;
  for (std::int64_t step = 1; step <= 3; ++step) {
    training.step(static_cast<int>(step) - 1);
    hashes.push_back(io::parameters_hash(*training.net));
    saver.start(state_of(training), at_step(step), false);
    for (const optim::NamedState& each : state_of(training).model) fill(each.tensor, 7);  // as later steps do
    for (const optim::NamedState& each : state_of(training).optimizer.tensors) fill(each.tensor, 7);
    const auto report = saver.finish();
    ASSERT_TRUE(report);
    EXPECT_EQ(report->step, step);
    EXPECT_EQ(report->path, temp.path() / fmt::format("step_{:06}", step));
    EXPECT_GE(report->write_ms, 0);
    const io::Checkpoint saved = io::open_checkpoint(report->path);
    EXPECT_EQ(saved.manifest.parameters_hash, hashes.back());
    io::load_checkpoint(saved, *training.net, training.optimizer.get());
    EXPECT_EQ(training.optimizer->steps(), step);
  }
  EXPECT_FALSE(saver.finish()) << "each checkpoint is reported once";
}

TEST(CheckpointSaver, ThrowsTheErrorOfTheWriteAndKeepsTheEarlierCheckpoint) {
  const TempDirectory temp(TempDirectory::in_memory());
  io::CheckpointDirectory checkpoints(temp.path());
  const TinyTraining training;
  CheckpointSaver saver(checkpoints, nullptr);
  io::Snapshot state = state_of(training);
  saver.start(state, at_step(1), false);
  ASSERT_TRUE(saver.finish());
  state.optimizer.tensors.push_back(
      state.optimizer.tensors[0]);  // a file cannot have two tensors of one name
  saver.start(state, at_step(2), false);
  EXPECT_THROW(saver.finish(), UsageError);
  EXPECT_EQ(checkpoints.latest()->manifest.step, 1);
  EXPECT_FALSE(checkpoints.contains(2));
}

/// Runs `body` for each rank in a thread of its own.
void on_ranks(int ranks, const std::function<void(dist::Communicator&)>& body) {
  std::vector<std::unique_ptr<dist::Communicator>> communicators = dist::make_thread_communicators(ranks, {});
  std::vector<std::thread> threads;
  for (const auto& comm : communicators) threads.emplace_back([&body, &comm = *comm] { body(comm); });
  for (std::thread& thread : threads) thread.join();
}

/// Returns the shard of a rank: elements [5 rank, 5 rank + 5) of one tensor.
optim::OptimizerShard shard_of(int rank, int ranks, double value) {
  optim::OptimizerShard shard{.optimizer = "sgd", .steps = 3, .index = rank, .count = ranks, .pieces = {}};
  shard.pieces.push_back({"momentum/conv.weight",
                          {5 * ranks},
                          nn::ParameterKind::weight,
                          5 * rank,
                          Tensor::full({5}, value, DType::f32, Device::cpu())});
  return shard;
}

TEST(CheckpointSaver, WritesAShardOnEachRank) {
  const TempDirectory temp(TempDirectory::in_memory());
  constexpr int kRanks = 3;
  on_ranks(kRanks, [&](dist::Communicator& comm) {
    io::CheckpointDirectory checkpoints(temp.path());
    const TinyTraining training;
    CheckpointSaver saver(checkpoints, &comm);
    EXPECT_TRUE(saver.can_write_shards());
    io::Snapshot state = io::Snapshot::of(*training.net);
    state.shard = shard_of(comm.rank(), kRanks, comm.rank() + 0.5);
    saver.start(state, at_step(3), true);
    fill(state.shard.pieces[0].values, -1);
    EXPECT_TRUE(saver.shards_pending());
    int polls = 0;
    for (; saver.shards_pending(); ++polls) EXPECT_EQ(saver.poll().has_value(), false);
    EXPECT_EQ(saver.finish().has_value(), comm.rank() == 0) << polls;
  });
  const io::Checkpoint checkpoint = *io::CheckpointDirectory(temp.path()).latest();
  EXPECT_EQ(checkpoint.manifest.shards(), kRanks);
  const io::SavedOptimizer saved(checkpoint);
  EXPECT_EQ(saved.steps(), 3);
  const Tensor whole =
      saved.read({"momentum/conv.weight", Tensor::empty({5 * kRanks}, DType::f32, Device::meta())});
  EXPECT_THAT(whole.to_vector<float>(),
              ::testing::ElementsAre(.5, .5, .5, .5, .5, 1.5, 1.5, 1.5, 1.5, 1.5, 2.5, 2.5, 2.5, 2.5, 2.5));
}

TEST(CheckpointSaver, KeepsTheEarlierCheckpointIfARankCannotWriteItsShard) {
  const TempDirectory temp(TempDirectory::in_memory());
  on_ranks(2, [&](dist::Communicator& comm) {
    io::CheckpointDirectory checkpoints(temp.path());
    const TinyTraining training;
    CheckpointSaver saver(checkpoints, &comm);
    io::Snapshot state = io::Snapshot::of(*training.net);
    state.shard = shard_of(comm.rank(), 2, 1);
    saver.start(state, at_step(1), true);
    saver.finish();
    if (comm.rank() == 1) state.shard.pieces.push_back(state.shard.pieces[0]);  // refused, as above
    saver.start(state, at_step(2), true);
    if (comm.rank() == 0) {
      EXPECT_THROW(saver.finish(), PeerError);
    } else {
      EXPECT_THROW(saver.finish(), UsageError);
      comm.abort("rank 1 cannot write");
    }
    EXPECT_FALSE(saver.finish_alone());
  });
  EXPECT_EQ(io::CheckpointDirectory(temp.path()).latest()->manifest.step, 1);
}

}  // namespace
}  // namespace convoy
