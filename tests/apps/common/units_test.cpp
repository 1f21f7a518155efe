// Unit tests of parts of apps/ that need no separate process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "convoy/apps/common/config_file.h"
#include "convoy/apps/common/data_source.h"
#include "convoy/apps/programs/npy.h"
#include "convoy/apps/train/report/progress.h"
#include "convoy/apps/train/report/run_log.h"
#include "convoy/apps/train/training_state.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/flock_fault.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using Json = nlohmann::ordered_json;

TEST(ConfigFile, ReadsStringsNumbersBooleansAndComments) {
  const std::vector<ConfigEntry> entries = parse_config(
      "# a comment\n\nlr = 1e-3  # and another\nname = 'a # b \"c\"'\r\nbasic=\"x\\\"y\\\\z\\n\"\non = true",
      "test");
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].key, "lr");
  EXPECT_EQ(entries[0].value, "1e-3");
  EXPECT_EQ(entries[0].line, 3);
  EXPECT_EQ(entries[1].value, "a # b \"c\"");
  EXPECT_EQ(entries[2].value, "x\"y\\z\n");
  EXPECT_EQ(entries[3].value, "true");
  EXPECT_EQ(entries[3].line, 6);
}

TEST(ConfigFile, QuotedStringsRoundTrip) {
  for (const char* text :
       {"", "plain", "it's", "a \"b\"", "both ' and \"", "back\\slash", "tab\tand\nline", "é …", "#"}) {
    const std::vector<ConfigEntry> entries = parse_config("key = " + quote_for_config(text), "test");
    ASSERT_EQ(entries.size(), 1u) << text;
    EXPECT_EQ(entries[0].value, text);
  }
}

TEST(ConfigFile, RefusesInvalidLines) {
  for (const char* text : {"[table]", "key", "key =", "= 3", "a b = 3", "list = [1, 2]", "open = 'x",
                           "open = \"x", "bad = \"\\q\"", "two = 1 2", "\"quoted\" = 1"})
    EXPECT_THROW(parse_config(text, "test"), UsageError) << text;
}

TEST(Npy, HasDataAfterAnAlignedHeader) {
  const std::string bytes =
      encode_npy(Tensor::from(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}, Device::cpu()));
  EXPECT_EQ(bytes.size() % 64, 48u) << "six doubles after a multiple of 64";
  EXPECT_THAT(bytes, ::testing::HasSubstr("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3, ), }"));
  double last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 8, 8);
  EXPECT_EQ(last, 6);
}

TEST(DataSource, FindsTheDownloadsOfTorchvision) {
  const TempDirectory directory;
  const std::filesystem::path root = directory.path();
  directory.write("MNIST/raw/train-images-idx3-ubyte", "");
  directory.write("cifar-10-batches-py/data_batch_1", "");
  const auto found = [](const char* dataset, const std::filesystem::path& data) {
    return locate_data({.dataset = dataset, .data = data.string()}).directory;
  };
  EXPECT_EQ(found("mnist", root), root);
  EXPECT_EQ(found("mnist", root / "MNIST"), root / "MNIST");
  EXPECT_EQ(found("mnist", root / "MNIST/raw"), root / "MNIST/raw");
  EXPECT_EQ(found("cifar10", root), root);
  EXPECT_EQ(found("cifar10", root / "cifar-10-batches-py"), root / "cifar-10-batches-py");
}

TEST(RunLog, IsTruncatedToTheCheckpoint) {
  const TempDirectory directory;
  const std::filesystem::path file = directory.path() / "log.jsonl";
  {
    RunLog log(file, std::nullopt);
    log.write("start", {{"schema", kLogSchema}});
    for (int step = 1; step <= 4; ++step) log.write("step", {{"step", step}, {"loss", 0.1 + step}});
    log.write("result", {{"steps", 4}});
  }
  EXPECT_EQ((*read_result(file))["steps"], 4);
  { const RunLog log(file, 2); }
  EXPECT_FALSE(read_result(file).has_value());
  std::ifstream in(file);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2]["step"], 2);
  EXPECT_EQ(lines[2]["loss"].get<double>(), 2.1) << "numbers round-trip exactly";
  { const RunLog log(file, std::nullopt); }
  EXPECT_EQ(std::filesystem::file_size(file), 0u);
}

TEST(RunLog, RefusesASecondWriter) {
  const TempDirectory directory;
  const RunLog first(directory.path() / "log.jsonl", std::nullopt);
  EXPECT_TRUE(first.is_locked());
  EXPECT_THROW(RunLog(directory.path() / "log.jsonl", std::nullopt), UsageError);
}

TEST(RunLog, WorksOnAFileSystemWithoutLocks) {
  const TempDirectory directory;
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    const WithoutLocks without(error);
    RunLog log(directory.path() / "log.jsonl", std::nullopt);
    EXPECT_FALSE(log.is_locked());
    log.write("start", {{"schema", kLogSchema}});
  }
}

TEST(TrainingState, RoundTripsBitForBit) {
  TrainingState state{.step = 7, .epoch = 1, .epoch_step = 2, .samples = 900, .train_seconds = 0.1 + 0.2};
  state.loss.add(1.0 / 3);
  state.loss.add(2.0 / 7);
  state.last_loss = 2.0 / 7;
  state.best = TrainingState::Score{.step = 5, .accuracy = 0.1 + 0.7, .loss = 1.0 / 9, .count = 100};
  io::Manifest manifest;
  write_state(state, manifest);
  TrainingState back = read_state(manifest, "test");
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.epoch, 1);
  EXPECT_EQ(back.epoch_step, 2);
  EXPECT_EQ(back.samples, 900);
  EXPECT_EQ(back.train_seconds, state.train_seconds);
  EXPECT_EQ(back.last_loss, state.last_loss);
  EXPECT_FALSE(back.evaluated.has_value());
  EXPECT_EQ(back.best->accuracy, state.best->accuracy);
  state.loss.add(0.1);
  back.loss.add(0.1);
  EXPECT_EQ(back.loss.value(), state.loss.value());

  manifest.extra["training"] = "{\"train_seconds\": 1}";
  EXPECT_THROW(read_state(manifest, "test"), CheckpointError);
  manifest.extra.clear();
  EXPECT_THROW(read_state(manifest, "test"), CheckpointError);
}

TEST(Duration, IsReadable) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(65.4), "1:05");
  EXPECT_EQ(format_duration(3661), "1:01:01");
}

}  // namespace
}  // namespace convoy::testing
