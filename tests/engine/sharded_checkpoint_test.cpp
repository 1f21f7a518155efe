// Tests of checkpoints whose optimizer state is stored in shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/engine/io/checkpoint.h"
#include "convoy/kernels/base/check.h"
#include "tests/engine/checkpoint_files.h"
#include "tests/testing/support/temp_directory.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TempDirectory;
using testing::TinyTraining;
using ::testing::UnorderedElementsAre;

/// Saves a training as the ranks of a job with ZeRO do: each tensor of the state is cut at the same fractions.
io::Checkpoint save_in_shards(const fs::path& directory, const TinyTraining& training, int shards) {
  io::CheckpointDirectory checkpoints(directory);
  io::Snapshot snapshot = io::Snapshot::of(*training.net);
  const fs::path temporary = checkpoints.begin(1);
  std::vector<io::FileRecord> records;
  for (int i = 0; i < shards; ++i) {
    const optim::OptimizerState whole = state_of(*training.optimizer);
    snapshot.shard = {
        .optimizer = whole.name, .steps = whole.steps, .index = i, .count = shards, .pieces = {}};
    for (const optim::NamedState& state : whole.tensors) {
      const std::int64_t numel = state.tensor.numel(), begin = numel * i / shards;
      snapshot.shard.pieces.push_back({state.name, state.tensor.shape(), state.kind, begin,
                                       state.tensor.slice(begin, {numel * (i + 1) / shards - begin})});
    }
    std::erase_if(snapshot.shard.pieces, [](const auto& piece) { return piece.values.numel() == 0; });
    records.push_back(io::CheckpointDirectory::write_shard(temporary, snapshot.shard));
  }
  return io::open_checkpoint(checkpoints.commit(temporary, snapshot, at_step(1), records, false));
}

TEST(ShardedCheckpoint, LoadsIntoAWholeOptimizer) {
  const TempDirectory directory(TempDirectory::in_memory());
  TinyTraining saved("adam"), loaded("adam", DType::f32, 99);
  saved.step(0);
  const io::Checkpoint checkpoint = save_in_shards(directory.path(), saved, 3);
  EXPECT_THAT(
      names_in(checkpoint.path),
      UnorderedElementsAre("model.safetensors", "manifest.json", "optimizer-00001-of-00003.safetensors",
                           "optimizer-00002-of-00003.safetensors", "optimizer-00003-of-00003.safetensors"));
  io::load_checkpoint(checkpoint, *loaded.net, loaded.optimizer.get());
  EXPECT_EQ(io::encode_safetensors(io::state_dict(loaded.optimizer->state())),
            io::encode_safetensors(io::state_dict(saved.optimizer->state())));
  EXPECT_EQ(loaded.optimizer->steps(), 1);
  saved.step(1);
  loaded.step(1);
  EXPECT_EQ(io::parameters_hash(*loaded.net), io::parameters_hash(*saved.net));
}

TEST(ShardedCheckpoint, IsRefusedByAnotherOptimizer) {
  const TempDirectory directory(TempDirectory::in_memory());
  const TinyTraining saved("adam");
  TinyTraining other("sgd"), larger("adam", DType::f32, 1, 7);
  const io::Checkpoint checkpoint = save_in_shards(directory.path(), saved, 2);
  EXPECT_THAT(checkpoint_error([&] { io::load_checkpoint(checkpoint, *other.net, other.optimizer.get()); }),
              HasSubstr("was saved with optimizer adam, expected sgd"));
  EXPECT_THAT(
      checkpoint_error([&] { io::SavedOptimizer(checkpoint).check_matches(state_of(*larger.optimizer)); }),
      HasSubstr("second_moment/fc.weight\" is f32 [5, 4], expected f32 [7, 4]"));
}

TEST(ShardedCheckpoint, IsDamagedIfAShardIsMissingOrChanged) {
  const TempDirectory directory(TempDirectory::in_memory());
  const TinyTraining saved("adam");
  const fs::path path = save_in_shards(directory.path(), saved, 2).path;
  const fs::path shard = path / io::shard_file(1, 2);
  flip_byte(shard, 2000);
  EXPECT_THAT(checkpoint_error([&] { io::open_checkpoint(path); }), HasSubstr("damaged"));
  fs::remove(shard);
  EXPECT_THAT(checkpoint_error([&] { io::open_checkpoint(path); }), HasSubstr("cannot be opened"));
}

/// A manifest can be right while the shards are not of one state.
TEST(ShardedCheckpoint, IsRefusedIfTheShardsDoNotCoverTheState) {
  const TempDirectory directory(TempDirectory::in_memory());
  const TinyTraining training("adam");
  io::CheckpointDirectory checkpoints(directory.path());
  const auto open_with = [&](std::int64_t begin, std::int64_t numel, Shape shape) {
    io::Snapshot snapshot = io::Snapshot::of(*training.net);
    const fs::path temporary = checkpoints.begin(1);
    std::vector<io::FileRecord> records;
    for (int i = 0; i < 2; ++i) {
      snapshot.shard = {.optimizer = "adam", .steps = 1, .index = i, .count = 2, .pieces = {}};
      snapshot.shard.pieces.push_back({"a", i == 0 ? Shape{10} : shape, nn::ParameterKind::weight,
                                       i == 0 ? 0 : begin,
                                       Tensor::zeros({i == 0 ? 5 : numel}, DType::f32, Device::cpu())});
      records.push_back(io::CheckpointDirectory::write_shard(temporary, snapshot.shard));
    }
    const fs::path path = checkpoints.commit(temporary, snapshot, at_step(1), records, false);
    return checkpoint_error([&] { io::SavedOptimizer(io::open_checkpoint(path)); });
  };
  EXPECT_EQ(open_with(5, 5, {10}), "");
  EXPECT_THAT(open_with(5, 4, {10}), HasSubstr("9 elements of \"a\" in a row, expected 10"));
  EXPECT_THAT(open_with(4, 6, {10}), HasSubstr("5 elements of \"a\" in a row, expected 10"));
  EXPECT_THAT(open_with(6, 5, {10}), HasSubstr("5 elements of \"a\" in a row, expected 10"));
  EXPECT_THAT(open_with(5, 5, {2, 5}), HasSubstr("the metadata of \"a\" are missing or damaged"));
}

}  // namespace
}  // namespace convoy
