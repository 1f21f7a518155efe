#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/io/manifest.h"
#include "convoy/engine/optim/weight_average.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/temp_directory.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::TempDirectory;
using testing::TinyTraining;
using ::testing::UnorderedElementsAre;

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  return names;
}

io::Manifest at_step(std::int64_t step) {
  io::Manifest manifest;
  manifest.step = step;
  return manifest;
}

template <class F>
std::string checkpoint_error(F&& f) {
  try {
    f();
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

void flip_byte(const std::filesystem::path& path, std::size_t position) {
  std::string bytes = testing::contents_of(path);
  bytes.at(position) = static_cast<char>(~bytes[position]);
  std::ofstream(path, std::ios::binary) << bytes;
}

struct ResumeCase {
  const char* optimizer;
  DType dtype;
};
class CheckpointResume : public ::testing::TestWithParam<ResumeCase> {};

TEST_P(CheckpointResume, ResumesBitForBit) {
  const auto [optimizer, dtype] = GetParam();
  const TempDirectory directory(TempDirectory::in_memory());
  TinyTraining whole(optimizer, dtype, 1);
  for (int step = 0; step < 3; ++step) whole.step(step);
  const fs::path saved =
      io::CheckpointDirectory(directory.path()).save(*whole.net, *whole.optimizer, at_step(3), false);
  for (int step = 3; step < 6; ++step) whole.step(step);

  TinyTraining resumed(optimizer, dtype, 99);
  const io::Checkpoint checkpoint = io::open_checkpoint(saved);
  io::load_checkpoint(checkpoint, *resumed.net, resumed.optimizer.get());
  EXPECT_EQ(checkpoint.manifest.step, 3);
  EXPECT_EQ(resumed.optimizer->steps(), 3);
  EXPECT_EQ(checkpoint.manifest.parameters_hash, io::parameters_hash(*resumed.net));
  for (int step = 3; step < 6; ++step) resumed.step(step);
  EXPECT_EQ(io::encode_safetensors(io::state_dict(*resumed.net)),
            io::encode_safetensors(io::state_dict(*whole.net)));
  EXPECT_EQ(io::encode_safetensors(io::state_dict(resumed.optimizer->state())),
            io::encode_safetensors(io::state_dict(whole.optimizer->state())));
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointResume,
                         ::testing::Values(ResumeCase{"sgd", DType::f32}, ResumeCase{"adam", DType::f32},
                                           ResumeCase{"adamw", DType::f32}, ResumeCase{"muon", DType::f32},
                                           ResumeCase{"sgd", DType::f64}),
                         [](const auto& test) {
                           return std::string(test.param.optimizer) + "_" +
                                  std::string(to_string(test.param.dtype));
                         });

/// Returns the metadata of the optimizer's file in a checkpoint.
std::map<std::string, std::string> optimizer_metadata(const fs::path& checkpoint) {
  return io::SafetensorsReader(checkpoint / io::kOptimizerFile).metadata();
}

/// Makes a step; unless `has_fc`, the parameters of the last layer have no gradients.
void step_with(const TinyTraining& training, std::int64_t number, bool has_fc) {
  for (const nn::NamedParameter& p : training.net->parameters())
    if (p.name.starts_with("fc.")) p.variable.set_requires_grad(has_fc);
  training.step(number);
}

TEST(Checkpoint, KeepsTheStepsOfEachParameter) {
  for (const char* name : {"adam", "adamw"}) {
    const TempDirectory directory(TempDirectory::in_memory());
    TinyTraining whole(name);
    whole.step(0);
    const auto save = [&](std::int64_t step) {
      return io::CheckpointDirectory(directory.path())
          .save(*whole.net, *whole.optimizer, at_step(step), false);
    };
    EXPECT_THAT(optimizer_metadata(save(1)),
                ElementsAre(std::pair<const std::string, std::string>("format", "pt")))
        << "a training in which all parameters have gradients stores nothing more";
    step_with(whole, 1, false);
    step_with(whole, 2, true);
    const fs::path saved = save(3);
    EXPECT_EQ(optimizer_metadata(saved).at("own_steps"), R"({"fc.bias":2,"fc.weight":2})");

    TinyTraining resumed(name, DType::f32, 99);
    step_with(resumed, 8, true);
    step_with(resumed, 9, false);
    io::load_checkpoint(io::open_checkpoint(saved), *resumed.net, resumed.optimizer.get());
    EXPECT_EQ(resumed.optimizer->own_steps(), (optim::StepsByName{{"fc.bias", 2}, {"fc.weight", 2}}));
    for (const TinyTraining* each : {&whole, &resumed}) {
      step_with(*each, 3, true);
      step_with(*each, 4, false);
      step_with(*each, 5, true);
    }
    EXPECT_EQ(io::parameters_hash(*resumed.net), io::parameters_hash(*whole.net)) << name;
    EXPECT_EQ(resumed.optimizer->own_steps(), (optim::StepsByName{{"fc.bias", 4}, {"fc.weight", 4}}));

    io::Snapshot live, copy;
    live.optimizer = optim::state_of(*whole.optimizer);
    copy.copy_from(live);
    EXPECT_EQ(copy.optimizer.own_steps, live.optimizer.own_steps);
  }
}

TEST(Checkpoint, ManifestRoundTrips) {
  const TempDirectory directory(TempDirectory::in_memory());
  TinyTraining training("adamw");
  training.step(0);
  io::Manifest manifest;
  manifest.step = 1234567;
  manifest.epoch = 12;
  manifest.epoch_step = 34;
  manifest.samples = 1LL << 40;
  manifest.model = "tiny";
  manifest.metrics = {{"test_accuracy", 0.1 + 0.2}, {"test_loss", std::nan("")}};
  manifest.extra = {{"classes", "[\"cat\", \"dög\"]"}, {"config", "a = 1\nb = \"\\\"\n"}, {"", ""}};
  const fs::path saved = io::CheckpointDirectory(directory.path() / "a" / "b")
                             .save(*training.net, *training.optimizer, manifest, false);
  EXPECT_EQ(saved, directory.path() / "a" / "b" / "step_1234567");
  const io::Manifest read = io::read_manifest(saved);
  EXPECT_EQ(read.step, manifest.step);
  EXPECT_EQ(read.epoch, 12);
  EXPECT_EQ(read.epoch_step, 34);
  EXPECT_EQ(read.samples, manifest.samples);
  EXPECT_EQ(read.model, "tiny");
  EXPECT_EQ(read.optimizer, "adamw");
  EXPECT_EQ(read.optimizer_steps, 1);
  EXPECT_EQ(read.dtype, "f32");
  EXPECT_EQ(read.parameters_hash, io::parameters_hash(*training.net));
  EXPECT_EQ(read.metrics.at("test_accuracy"), 0.1 + 0.2);
  EXPECT_TRUE(std::isnan(read.metrics.at("test_loss")));
  EXPECT_EQ(read.extra, manifest.extra);
}

TEST(Checkpoint, LoadIntoAnotherModelOrOptimizerChangesNothing) {
  const TempDirectory directory(TempDirectory::in_memory());
  TinyTraining saved("adam");
  const fs::path path =
      io::CheckpointDirectory(directory.path()).save(*saved.net, *saved.optimizer, at_step(1), false);

  TinyTraining other_model("adam", DType::f32, 5, 7), other_optimizer("sgd", DType::f32, 5);
  for (TinyTraining* other : {&other_model, &other_optimizer}) {
    const std::string before = io::parameters_hash(*other->net);
    EXPECT_THROW(io::load_checkpoint(io::open_checkpoint(path), *other->net, other->optimizer.get()),
                 CheckpointError);
    EXPECT_EQ(io::parameters_hash(*other->net), before);
    EXPECT_EQ(other->optimizer->steps(), 0);
  }
  EXPECT_THAT(checkpoint_error([&] {
                io::load_checkpoint(io::open_checkpoint(path), *other_optimizer.net,
                                    other_optimizer.optimizer.get());
              }),
              HasSubstr("was saved with optimizer adam, expected sgd"));
  io::load_checkpoint(io::open_checkpoint(path), *other_optimizer.net,
                      nullptr);  // the model matches, only the optimizer does not
  EXPECT_EQ(io::parameters_hash(*other_optimizer.net), io::parameters_hash(*saved.net));
}

// With other settings the momentum is missing. The model matches, but nothing may change.
TEST(Checkpoint, MismatchedStateLeavesTheModelUnchanged) {
  const TempDirectory directory(TempDirectory::in_memory());
  TinyTraining plain, training("sgd", DType::f32, 5);
  plain.optimizer =
      std::make_unique<optim::Sgd>(optim::decay_groups(plain.net->parameters(), 0), optim::SgdSettings());
  const fs::path path =
      io::CheckpointDirectory(directory.path()).save(*plain.net, *plain.optimizer, at_step(1), false);
  const std::string before = io::parameters_hash(*training.net);
  EXPECT_THAT(checkpoint_error([&] {
                io::load_checkpoint(io::open_checkpoint(path), *training.net, training.optimizer.get());
              }),
              HasSubstr("missing (\"momentum/conv.weight\""));
  EXPECT_EQ(io::parameters_hash(*training.net), before);
}

/// Returns the path of a checkpoint that was found.
std::optional<fs::path> path_of(const std::optional<io::Checkpoint>& checkpoint) {
  return checkpoint ? std::optional(checkpoint->path) : std::nullopt;
}

struct Directory {
  TempDirectory temp{TempDirectory::in_memory()};
  io::CheckpointDirectory checkpoints{temp.path()};
  TinyTraining training;

  fs::path save(std::int64_t step, bool best = false) {
    return checkpoints.save(*training.net, *training.optimizer, at_step(step), best);
  }
  fs::path at(const std::string& name) const { return temp.path() / name; }
};

TEST(Checkpoint, StoresOtherWeights) {
  const TempDirectory directory(TempDirectory::in_memory());
  const TinyTraining training;
  const optim::WeightAverage initial(*training.net);
  training.step(0);
  io::CheckpointDirectory checkpoints(directory.path());
  io::Snapshot snapshot = io::Snapshot::of(*training.net);
  snapshot.optimizer = optim::state_of(*training.optimizer);
  snapshot.other_weights = initial.state("slow");
  const io::Checkpoint saved = io::open_checkpoint(checkpoints.save(snapshot, at_step(1), false));
  EXPECT_TRUE(saved.manifest.has_other_weights());
  EXPECT_EQ(saved.manifest.shards(), 0);

  const TinyTraining loaded("sgd", DType::f32, 99);
  optim::WeightAverage average(*loaded.net);
  io::load_checkpoint(saved, *loaded.net, loaded.optimizer.get(), average.state("slow"));
  EXPECT_EQ(io::encode_safetensors(io::state_dict(average.state("slow"))),
            io::encode_safetensors(io::state_dict(initial.state("slow"))));
  EXPECT_EQ(io::parameters_hash(*loaded.net), io::parameters_hash(*training.net));
  average.swap();
  EXPECT_EQ(io::parameters_hash(*loaded.net), io::parameters_hash(*TinyTraining().net));

  // Weights of another kind, or none, are refused before anything changes.
  const std::string before = io::parameters_hash(*loaded.net);
  EXPECT_THROW(io::load_checkpoint(saved, *loaded.net, nullptr, average.state("training")), CheckpointError);
  const io::Checkpoint plain =
      io::open_checkpoint(checkpoints.save(*training.net, *training.optimizer, at_step(2), false));
  EXPECT_THAT(message_of<CheckpointError>(
                  [&] { io::load_checkpoint(plain, *loaded.net, nullptr, average.state("slow")); }),
              HasSubstr("found no other_weights.safetensors"));
  EXPECT_EQ(io::parameters_hash(*loaded.net), before);

  fs::resize_file(saved.path / io::kOtherWeightsFile, 100);
  EXPECT_THROW(io::open_checkpoint(saved.path), CheckpointError);
}

TEST(CheckpointDirectory, StartsEmpty) {
  const Directory directory;
  EXPECT_EQ(path_of(directory.checkpoints.latest()), std::nullopt);
  EXPECT_EQ(path_of(directory.checkpoints.best()), std::nullopt);
  EXPECT_EQ(path_of(io::CheckpointDirectory(directory.at("absent")).latest()), std::nullopt);
}

TEST(CheckpointDirectory, ThrowsIfUnreadable) {
  const Directory directory;
  directory.temp.write("file", "");
  EXPECT_THROW(io::CheckpointDirectory(directory.at("file")).latest(), CheckpointError);
}

TEST(CheckpointDirectory, KeepsTheLastAndTheBest) {
  Directory directory;
  directory.checkpoints.set_keep_last(2);
  for (int step = 1; step <= 5; ++step) directory.save(step, step == 2);
  EXPECT_THAT(names_in(directory.temp.path()),
              UnorderedElementsAre("step_000002", "step_000004", "step_000005", "LATEST", "BEST"));
  EXPECT_EQ(path_of(directory.checkpoints.latest()), directory.at("step_000005"));
  EXPECT_EQ(path_of(directory.checkpoints.best()), directory.at("step_000002"));
  EXPECT_EQ(testing::contents_of(directory.at("LATEST")), "step_000005\n");
}

TEST(CheckpointDirectory, KeepsAllOrNoBestOnRequest) {
  Directory all;
  all.checkpoints.set_keep_last(0);
  for (int step = 1; step <= 5; ++step) all.save(step);
  EXPECT_EQ(names_in(all.temp.path()).size(), 6u);

  Directory no_best;
  no_best.checkpoints.set_keep_last(1);
  no_best.checkpoints.set_keep_best(false);
  for (int step = 1; step <= 3; ++step) no_best.save(step, true);
  EXPECT_THAT(names_in(no_best.temp.path()), UnorderedElementsAre("step_000003", "LATEST"));
  EXPECT_EQ(path_of(no_best.checkpoints.best()), std::nullopt);
  EXPECT_THROW(no_best.checkpoints.set_keep_last(-1), UsageError);
}

TEST(CheckpointDirectory, LatestIsTheLastSavedNotTheHighestStep) {
  Directory directory;
  directory.checkpoints.set_keep_last(1);
  directory.save(100);
  directory.save(60);  // after a resume from an earlier step
  EXPECT_EQ(path_of(directory.checkpoints.latest()), directory.at("step_000060"));
}

TEST(CheckpointDirectory, SkipsDamagedCheckpoints) {
  Directory directory;
  for (int step = 1; step <= 3; ++step) directory.save(step, true);
  flip_byte(directory.at("step_000003") / io::kModelFile, 500);
  fs::resize_file(directory.at("step_000002") / io::kOptimizerFile, 100);
  std::vector<std::string> warnings;
  EXPECT_EQ(path_of(directory.checkpoints.latest(&warnings)), directory.at("step_000001"));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("step_000003/model.safetensors: damaged"),
                                    HasSubstr("step_000002/optimizer.safetensors: 100 bytes")));
  EXPECT_THAT(message_of<CheckpointError>([&] { directory.checkpoints.best(); }),
              HasSubstr("step_000003/model.safetensors: damaged"));

  TinyTraining other("sgd", DType::f32, 5);
  const std::string before = io::parameters_hash(*other.net);
  EXPECT_THROW(io::load_checkpoint(io::open_checkpoint(directory.at("step_000003")), *other.net,
                                   other.optimizer.get()),
               CheckpointError);
  EXPECT_EQ(io::parameters_hash(*other.net), before);
}

TEST(CheckpointDirectory, FindsCheckpointsWithoutAValidPointer) {
  Directory directory;
  for (int step = 1; step <= 2; ++step) directory.save(step);
  fs::remove(directory.at("LATEST"));
  EXPECT_EQ(path_of(directory.checkpoints.latest()), directory.at("step_000002"));
  for (const std::string text :
       {"", "../step_000001\n", "step_9999999999999999999999\n", "/etc\n", "step_000009\n"}) {
    directory.temp.write("LATEST", text);
    EXPECT_EQ(path_of(directory.checkpoints.latest()), directory.at("step_000002")) << text;
  }
  directory.temp.write("LATEST", std::string(1000, 'x'));
  EXPECT_EQ(path_of(directory.checkpoints.latest()), directory.at("step_000002"));
}

TEST(CheckpointDirectory, ReportsPointersThatNameNoCheckpoint) {
  Directory directory;
  directory.save(1, true);
  const auto warning = [&] {
    std::vector<std::string> warnings;
    EXPECT_EQ(path_of(directory.checkpoints.latest(&warnings)), directory.at("step_000001"));
    return warnings.empty() ? "" : warnings.front();
  };
  const auto refusal = [&] { return message_of<CheckpointError>([&] { directory.checkpoints.best(); }); };
  EXPECT_EQ(warning(), "");
  for (const std::string text : {"", "../step_000001\n", "/etc\n"}) {
    directory.temp.write("LATEST", text);
    EXPECT_THAT(warning(), HasSubstr("LATEST: found no name of a checkpoint")) << text;
    directory.temp.write("BEST", text);
    EXPECT_THAT(refusal(), HasSubstr("BEST: found no name of a checkpoint")) << text;
  }
  directory.temp.write("LATEST", "step_000009\n");
  EXPECT_THAT(warning(), HasSubstr("step_000009: no such directory, although LATEST names it"));
  directory.temp.write("BEST", "step_000009\n");
  EXPECT_THAT(refusal(), HasSubstr("step_000009: no such directory, although BEST names it"));
}

TEST(CheckpointDirectory, SavingAStepAgainReplacesIt) {
  Directory directory;
  directory.save(1);
  directory.training.step(0);
  directory.save(1);
  EXPECT_THAT(names_in(directory.temp.path()), UnorderedElementsAre("step_000001", "LATEST"));
  EXPECT_EQ(directory.checkpoints.latest()->manifest.parameters_hash,
            io::parameters_hash(*directory.training.net));
}

TEST(CheckpointDirectory, RenamedOldCheckpointIsStillValid) {
  Directory directory;
  directory.save(1, true);
  fs::rename(directory.at("step_000001"),
             directory.at(".old-step_000001"));  // a kill between the two renames
  EXPECT_EQ(path_of(directory.checkpoints.latest()), directory.at(".old-step_000001"));
  EXPECT_EQ(path_of(directory.checkpoints.best()), directory.at(".old-step_000001"));
  directory.save(1);
  EXPECT_THAT(names_in(directory.temp.path()), UnorderedElementsAre("step_000001", "LATEST", "BEST"));
}

TEST(CheckpointDirectory, SaveRemovesTemporaryFilesOfAKilledSave) {
  Directory directory;
  directory.temp.write(".tmp-step_000007/model.safetensors", "half");
  directory.temp.write(".tmp-LATEST", "st");
  directory.save(8);
  EXPECT_THAT(names_in(directory.temp.path()), UnorderedElementsAre("step_000008", "LATEST"));
}

TEST(CheckpointDirectory, LeavesForeignFilesAlone) {
  Directory directory;
  directory.checkpoints.set_keep_last(1);
  directory.temp.write("step_notes.txt", "mine");
  directory.temp.write("step_1", "mine");
  directory.temp.write("step_000001_backup/model.safetensors", "mine");
  directory.save(2);
  directory.save(3);
  EXPECT_THAT(names_in(directory.temp.path()), UnorderedElementsAre("step_000003", "LATEST", "step_notes.txt",
                                                                    "step_1", "step_000001_backup"));
}

/// A run that resumes from an earlier step abandons the later checkpoints.
TEST(CheckpointDirectory, RemovesCheckpointsOfAnAbandonedTrainingFirst) {
  Directory directory;
  directory.checkpoints.set_keep_last(2);
  for (const int step : {10, 20, 30}) directory.save(step);
  directory.save(15);  // resumed from step 10, which is not kept
  directory.save(18);
  EXPECT_THAT(names_in(directory.temp.path()), UnorderedElementsAre("step_000015", "step_000018", "LATEST"));
}

TEST(CheckpointDirectory, PrefersOlderCheckpointsToThoseOfAnAbandonedTraining) {
  Directory directory;
  for (const int step : {10, 30, 15}) directory.save(step);
  fs::resize_file(directory.temp.path() / "step_000015" / "model.safetensors", 10);
  EXPECT_EQ(directory.checkpoints.latest()->path.filename(), "step_000010");
}

TEST(WriteFileAtomically, ReplacesTheFileAndLeavesNoTemporary) {
  const TempDirectory directory(TempDirectory::in_memory());
  const fs::path path = directory.path() / "config.toml";
  io::write_file_atomically(path, "one");
  io::write_file_atomically(path, std::string_view("two\0three", 9));
  EXPECT_EQ(testing::contents_of(path), std::string("two\0three", 9));
  io::write_file_atomically(path, "");
  EXPECT_EQ(testing::contents_of(path), "");
  EXPECT_THAT(names_in(directory.path()), ElementsAre("config.toml"));
}

/// Programs that end at the same time write the same file in the user's cache.
TEST(WriteFileAtomically, HasAnyNumberOfWriters) {
  const TempDirectory directory(TempDirectory::in_memory());
  const fs::path path = directory.path() / "plans.json";
  const std::string texts[] = {std::string(300'000, 'a'), std::string(200'000, 'b')};
  io::write_file_atomically(path, texts[0]);
  std::atomic<int> writing = 2;
  std::vector<std::jthread> writers;
  for (const std::string& text : texts)
    writers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) EXPECT_NO_THROW(io::write_file_atomically(path, text));
      --writing;
    });
  while (writing > 0) {
    const std::string found = testing::contents_of(path);
    ASSERT_TRUE(found == texts[0] || found == texts[1]) << found.size() << " bytes";
  }
  writers.clear();
  EXPECT_THAT(names_in(directory.path()), ElementsAre("plans.json"));
}

/// In a directory that others may write, a link with the temporary file's name could lead anywhere.
TEST(WriteFileAtomically, FollowsNoPlantedLink) {
  const TempDirectory directory(TempDirectory::in_memory());
  const fs::path victim = directory.write("victim", "precious");
  fs::create_symlink(victim, directory.path() / ".tmp-report.json");
  io::write_file_atomically(directory.path() / "report.json", "{}");
  EXPECT_EQ(testing::contents_of(victim), "precious");
  EXPECT_EQ(testing::contents_of(directory.path() / "report.json"), "{}");
}

TEST(WriteFileAtomically, ErrorNamesThePathAndTheReason) {
  const TempDirectory directory(TempDirectory::in_memory());
  fs::create_directory(directory.path() / "taken");
  directory.write("taken/file", "");
  const auto message = [&](const fs::path& path) -> std::string {
    try {
      io::write_file_atomically(path, "text");
      return "";
    } catch (const OutputError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(message(directory.path() / "absent" / "file"),
              AllOf(HasSubstr("absent"), HasSubstr("No such file or directory")));
  EXPECT_THAT(message(directory.path() / "taken"), HasSubstr("Is a directory"));
  EXPECT_THAT(names_in(directory.path()), ElementsAre("taken"));
}

// Tests of checkpoints whose optimizer state is stored in shards.

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
    for (const auto& [name, steps] : whole.own_steps)  // as if each shard had other parameters
      if (static_cast<int>(name.size()) % shards == i) snapshot.shard.own_steps[name] = steps;
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
  step_with(saved, 0, false);
  const io::Checkpoint checkpoint = save_in_shards(directory.path(), saved, 3);
  EXPECT_THAT(
      names_in(checkpoint.path),
      UnorderedElementsAre("model.safetensors", "manifest.json", "optimizer-00001-of-00003.safetensors",
                           "optimizer-00002-of-00003.safetensors", "optimizer-00003-of-00003.safetensors"));
  io::load_checkpoint(checkpoint, *loaded.net, loaded.optimizer.get());
  EXPECT_EQ(io::encode_safetensors(io::state_dict(loaded.optimizer->state())),
            io::encode_safetensors(io::state_dict(saved.optimizer->state())));
  EXPECT_EQ(loaded.optimizer->steps(), 1);
  EXPECT_EQ(loaded.optimizer->own_steps(), (optim::StepsByName{{"fc.bias", 0}, {"fc.weight", 0}}));
  step_with(saved, 1, true);
  step_with(loaded, 1, true);
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

TEST(ShardedCheckpoint, IsRefusedIfTheStepsOfAParameterAreNot) {
  const TempDirectory directory(TempDirectory::in_memory());
  const TinyTraining training("adam");
  io::CheckpointDirectory checkpoints(directory.path());
  const fs::path temporary = checkpoints.begin(1);
  io::Snapshot snapshot = io::Snapshot::of(*training.net);
  snapshot.shard = {.optimizer = "adam", .steps = 1, .pieces = {}, .own_steps = {{"a", 2}}};
  const io::FileRecord record = io::CheckpointDirectory::write_shard(temporary, snapshot.shard);
  const fs::path path = checkpoints.commit(temporary, snapshot, at_step(1), {record}, false);
  EXPECT_THAT(checkpoint_error([&] { io::SavedOptimizer(io::open_checkpoint(path)); }),
              HasSubstr("own_steps of the optimizer's metadata: found 2 steps of \"a\", expected 0 to 1"));
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
