// Shards: their bytes, verification and continuation; batches equal to those of the directory; the exact order on any
// number of ranks; damaged files, and web servers with faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "convoy/datasets/formats/parsers.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/datasets/shards/format.h"
#include "convoy/datasets/shards/shard_writer.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/http_server.h"
#include "tests/testing/support/image_files.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::contents_of;
using ::testing::HasSubstr;
using testing::HttpReply;
using testing::HttpRequest;
using testing::HttpServer;
using ::testing::IsEmpty;
using testing::Picture;
using ::testing::SizeIs;
using testing::TempDirectory;

constexpr int kSide = 12, kTrain = 31, kTest = 5;  // pixels; images of each class

class Shards : public ::testing::Test {
 protected:
  Shards() {
    for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"}) unsetenv(name);
    for (int label = 0; label < 3; ++label)
      for (int i = 0; i < kTrain + kTest; ++i) {
        Picture picture = Picture::ramp(kSide, kSide, 3);
        for (std::size_t at = 0; at < picture.pixels.size(); ++at)
          picture.pixels[at] = static_cast<std::uint8_t>(picture.pixels[at] / 2 + 40 * label + i);
        const bool is_jpeg = i % 3 > 0;
        directory.write("images/" + std::string(i < kTrain ? "train/" : "test/") + "class." +
                            std::to_string(label) + "/photo." + std::to_string(i) +
                            (is_jpeg ? ".JPG" : ".png"),
                        is_jpeg ? testing::jpeg(picture) : testing::png(picture));
      }
    options.shard_bytes = 40'000;
  }

  ShardReport write(const std::string& name = "shards") const {
    return write_shards(images, directory.path() / name, options);
  }
  DataSet read(const ReadOptions& more = {}) const {
    ReadOptions read = more;
    if (read.image_size == 0) read.image_size = kSide;
    return read_shards(shards, read);
  }
  /// Changes a file of the shards.
  void edit(const std::string& name, const std::function<void(std::string&)>& change) const {
    std::string bytes = contents_of(shards / name);
    change(bytes);
    directory.write("shards/" + name, bytes);
  }
  /// Returns the error of a pass over the training images.
  static std::string pass(const DataSet& data) {
    DataLoader loader(data.train, {.global_batch = 8, .workers = 1, .max_epochs = 1});
    try {
      while (!loader.next_step().empty()) {
      }
    } catch (const DataError& error) {
      return error.what();
    }
    return "no DataError";
  }
  std::string error_of_read(const ReadOptions& more = {}) const {
    try {
      return pass(read(more));
    } catch (const DataError& error) {
      return error.what();
    }
  }

  TempDirectory directory{TempDirectory::in_memory()};
  const fs::path images = directory.path() / "images", shards = directory.path() / "shards";
  ShardOptions options;
};

TEST_F(Shards, KeepTheBytesOfEveryImage) {
  const ShardReport report = write();
  EXPECT_EQ(report.samples, 3 * (kTrain + kTest));
  EXPECT_GT(report.shards, 4);
  std::map<std::string, std::string> found;  // image bytes, with their labels
  for (const fs::directory_entry& entry : fs::directory_iterator(shards)) {
    if (entry.path().extension() != ".tar") continue;
    std::string key, label;
    for_each_member(entry.path(), 1 << 20, 1 << 30, [&](const std::string& path, const std::string& bytes) {
      const std::size_t dot = path.find('.', path.rfind('/') + 1);
      if (path.substr(dot) == ".cls") {
        key = path.substr(0, dot);
        label = bytes;
      } else {
        EXPECT_EQ(path.substr(0, dot), key) << "a sample has the members KEY.cls and KEY.EXTENSION";
        EXPECT_TRUE(path.ends_with(".jpg") || path.ends_with(".png")) << path;
        EXPECT_EQ(path.substr(0, path.find('/')), "class." + label);
        EXPECT_TRUE(found.emplace(bytes, label).second);
      }
    });
  }
  std::size_t count = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(images)) {
    if (!entry.is_regular_file()) continue;
    ++count;
    EXPECT_TRUE(found.contains(contents_of(entry.path()))) << entry.path();
  }
  EXPECT_EQ(count, found.size());
}

TEST_F(Shards, AreEqualForEqualImagesAndSeed) {
  write("a");
  options.read.workers = 1;
  write("b");
  for (const fs::directory_entry& entry : fs::directory_iterator(directory.path() / "a"))
    EXPECT_EQ(contents_of(entry.path()), contents_of(directory.path() / "b" / entry.path().filename()))
        << entry.path().filename();
  options.read.seed = 2;
  write("c");
  EXPECT_NE(contents_of(directory.path() / "a/train-000000.tar"),
            contents_of(directory.path() / "c/train-000000.tar"));
}

TEST_F(Shards, ContinueAnInterruptedCall) {
  const ShardReport whole = write("whole");
  options.read.workers = 1;
  options.progress = [](const std::string&, std::int64_t done, std::int64_t) {
    if (done == 3) throw OutputError("interrupted");
  };
  EXPECT_THROW(write(), OutputError);
  EXPECT_FALSE(fs::exists(shards / kShardIndexName));
  edit("train-000001.tar", [](std::string& bytes) { bytes.resize(700); });  // torn after it was complete
  options.progress = {};
  EXPECT_EQ(write().kept, 2);
  directory.write("shards/train-000001.tar.part", "");  // as if that call had been killed after the index
  EXPECT_EQ(write().kept, whole.shards) << "a further call makes none";
  for (const fs::directory_entry& entry : fs::directory_iterator(directory.path() / "whole"))
    EXPECT_EQ(contents_of(entry.path()), contents_of(shards / entry.path().filename())) << entry.path();
  EXPECT_EQ(std::distance(fs::directory_iterator(shards), {}),
            std::distance(fs::directory_iterator(directory.path() / "whole"), {}));
  directory.write("images/train/class.0/another.png", testing::png(Picture::plain(kSide, kSide, 3, 9)));
  EXPECT_THAT(testing::message_of<DataError>([&] { write(); }), HasSubstr("has shards of other images"));
}

TEST_F(Shards, KeepAnInterruptedCallOfOtherOptions) {
  options.read.workers = 1;
  options.progress = [](const std::string&, std::int64_t done, std::int64_t) {
    if (done == 3) throw OutputError("interrupted");
  };
  EXPECT_THROW(write(), OutputError);
  options.progress = {};
  options.shard_bytes = std::int64_t{1}
                        << 30;  // one shard of each split, so that the others would be left over
  EXPECT_THAT(testing::message_of<DataError>([&] { write(); }),
              HasSubstr("has shards of other images or options"));
  options.shard_bytes = 40'000;
  EXPECT_EQ(write().kept, 3);
}

TEST_F(Shards, RefuseWhatCannotBeTrainedOrLostInTheImages) {
  fs::remove_all(images / "train/class.1");
  fs::remove_all(images / "train/class.2");
  fs::remove_all(images / "test/class.1");
  fs::remove_all(images / "test/class.2");
  EXPECT_THAT(testing::message_of<DataError>([&] { write(); }), HasSubstr("images: 1 class (class.0)"));
  EXPECT_FALSE(fs::exists(shards)) << "an error in the images makes no directory";
  for (const char* inner : {"images", "images/train/shards", "shards/../images/more"})
    EXPECT_THAT(testing::message_of<UsageError>([&] { write(inner); }),
                HasSubstr(std::string(inner) + ": found in the directory of the images"));
  EXPECT_FALSE(fs::exists(images / "train/shards"));
}

TEST_F(Shards, AreVerified) {
  const ShardReport report = write();
  EXPECT_EQ(verify_shards(shards, 2), report.shards);
  edit("train-000002.tar", [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  fs::remove(shards / "test-000000.tar");
  EXPECT_THAT(testing::message_of<DataError>([&] { verify_shards(shards, 2); }),
              AllOf(HasSubstr("2 of " + std::to_string(report.shards) + " shards"),
                    HasSubstr("train-000002.tar"), HasSubstr("test-000000.tar")));
}

TEST_F(Shards, HaveAnIndexThatIsVerified) {
  write();
  const std::string text = contents_of(shards / kShardIndexName);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    directory.write("shards/index.json", changed);
    return testing::message_of<DataError>([&] { verify_shards(shards, 1); });
  };
  EXPECT_THAT(replaced("31,\n    31", "30,\n    32"), HasSubstr("index.json: split train: "));
  EXPECT_THAT(replaced("\"bytes\": ", "\"bytes\": 1"), HasSubstr("index.json: split train: 1"));
}

TEST_F(Shards, LeaveOutImagesThatCannotBeDecoded) {
  directory.write("images/train/class.1/bad.jpg", "no image");
  options.read.workers = 1;
  options.shard_bytes = 4'000;
  EXPECT_THAT(testing::message_of<DataError>([&] { write(); }), HasSubstr("bad.jpg"));
  options.read.skip_corrupt = true;
  const ShardReport report = write();
  EXPECT_THAT(report.warnings, ::testing::Contains(HasSubstr("bad.jpg")));
  EXPECT_EQ(report.samples, 3 * (kTrain + kTest));
  EXPECT_GT(report.kept, 0) << "the call without the option has made others";
  options.read.skip_corrupt = false;
  EXPECT_THAT(testing::message_of<DataError>([&] { write(); }), HasSubstr("of other images or options"));
}

TEST_F(Shards, MadeWithoutBadImagesAreNotKeptByACallThatWantsAll) {
  directory.write("images/train/class.1/bad.jpg", "no image");
  options.read.skip_corrupt = true;
  write("whole");
  options.progress = [](const std::string&, std::int64_t done, std::int64_t count) {
    if (done == count) throw OutputError("interrupted before the index");
  };
  EXPECT_THROW(write(), OutputError);
  options.progress = {};
  options.read.skip_corrupt = false;
  EXPECT_THAT(testing::message_of<DataError>([&] { write(); }), HasSubstr("bad.jpg"));
}

TEST_F(Shards, MayHaveNoSample) {
  directory.write("images/train/class.1/bad.jpg", "no image");
  options.read.skip_corrupt = true;
  options.shard_bytes = 1;
  EXPECT_EQ(write().shards, 3 * (kTrain + kTest) + 1);
  EXPECT_EQ(pass(read()), "no DataError");
  for (const fs::directory_entry& entry : fs::directory_iterator(shards))
    if (entry.path().extension() == ".tar" && entry.file_size() == 1024) fs::remove(entry.path());
  const DataSet data = read({.skip_corrupt = true});
  EXPECT_THAT(data.warnings, ::testing::ElementsAre(HasSubstr("left out 0 samples: ")));
  EXPECT_EQ(data.train.size(), 3 * kTrain);
  EXPECT_EQ(pass(data), "no DataError");
}

TEST_F(Shards, HaveTheStatisticsAndClassesOfTheDirectory) {
  write();
  const DataSet folder = read_image_folder(images), data = read();
  EXPECT_EQ(data.classes, folder.classes);
  EXPECT_EQ(data.train.size(), folder.train.size());
  EXPECT_EQ(data.test.size(), folder.test.size());
  EXPECT_EQ(class_counts(data.train, 3), class_counts(folder.train, 3));
  EXPECT_EQ(channel_statistics(data.train).mean, channel_statistics(folder.train).mean);
  EXPECT_EQ(channel_statistics(data.train).std, channel_statistics(folder.train).std);
}

/// Returns the pixels of each image of an epoch by its file, which images have without their extension and split.
std::map<std::string, std::vector<float>> pixels_by_file(const ImageSet& set, const LoaderOptions& options) {
  std::map<std::string, std::vector<float>> pixels;
  DataLoader loader(set, options);
  for (auto step = loader.next_step(); !step.empty(); step = loader.next_step())
    for (const Batch& batch : step) {
      const auto ids = batch.ids.to_vector<std::int32_t>();
      for (std::int64_t i = 0; i < batch.ids.numel(); ++i) {
        std::string file = fs::path(set.file(ids[static_cast<std::size_t>(i)])).replace_extension().string();
        file = file.substr(file.find("class."));
        std::replace(file.begin() + 8, file.end(), '.', '_');
        EXPECT_EQ(file[6] - '0', batch.labels.to_vector<std::int32_t>()[static_cast<std::size_t>(i)]);
        pixels[file] = batch.images.rows(i, i + 1).to_vector<float>();
      }
    }
  return pixels;
}

TEST_F(Shards, GiveThePixelsOfTheDirectory) {
  write();
  for (const int side : {kSide, 5}) {
    const DataSet folder = read_image_folder(images, {.image_size = side}), data = read({.image_size = side});
    for (const bool shuffle : {false, true}) {
      const LoaderOptions loader{.global_batch = 10, .shuffle = shuffle, .max_epochs = 1};
      const auto expected = pixels_by_file(folder.train, loader);
      EXPECT_THAT(expected, SizeIs(3 * kTrain));
      EXPECT_EQ(pixels_by_file(data.train, loader), expected);
    }
  }
}

TEST_F(Shards, CropTheOriginalImages) {
  write();
  // With the ids of the shards, the directory gives the same crops.
  const DataSet folder = read_image_folder(images, {.image_size = 6}), data = read({.image_size = 6});
  std::vector<std::int32_t> rows;
  for (std::int64_t row = 0; row < data.train.size(); ++row) {
    const std::string stem = fs::path(data.train.file(row)).stem();
    for (std::int32_t at = 0; at < folder.train.size(); ++at) {
      std::string file = fs::path(folder.train.file(at)).replace_extension();
      if (file[file.find("class.") + 6] == data.train.file(row)[6] &&
          file.ends_with("." + stem.substr(stem.find('_') + 1)))
        rows.push_back(at);
    }
  }
  ASSERT_EQ(std::ssize(rows), data.train.size());
  const ImageSet same = select(folder.train, rows);
  const LoaderOptions loader{.global_batch = 20,
                             .shuffle = false,
                             .transform = {.original = {.min_area = 8, .rotation = 10}},
                             .max_epochs = 1};
  DataLoader expected(same, loader), found(data.train, loader);
  for (auto step = found.next_step(); !step.empty(); step = found.next_step())
    EXPECT_EQ(step.front().images.to_vector<float>(), expected.next_step().front().images.to_vector<float>());
}

/// Returns the ids of the steps [begin, end) of all ranks, in their order.
std::vector<std::int32_t> ids_of(const ImageSet& set, LoaderOptions options, int ranks, std::int64_t begin,
                                 std::int64_t end) {
  std::vector<std::vector<std::int32_t>> by_step(static_cast<std::size_t>(end - begin));
  for (int rank = 0; rank < ranks; ++rank) {
    options.rank = rank;
    options.world_size = ranks;
    DataLoader loader(set, options);
    loader.seek(1, begin);
    for (std::vector<std::int32_t>& ids : by_step)
      for (const Batch& batch : loader.next_step()) {
        const auto some = batch.ids.to_vector<std::int32_t>();
        ids.insert(ids.end(), some.begin(), some.end());
      }
  }
  std::vector<std::int32_t> all;
  for (const auto& ids : by_step) all.insert(all.end(), ids.begin(), ids.end());
  return all;
}

TEST_F(Shards, HaveTheSameOrderOnAnyNumberOfRanks) {
  write();
  const DataSet data = read();
  const LoaderOptions loader{.global_batch = 7, .seed = 3, .workers = 1};
  const std::int64_t steps = DataLoader(data.train, loader).steps_per_epoch();
  const std::vector<std::int32_t> whole = ids_of(data.train, loader, 1, 0, steps);
  EXPECT_EQ(std::set(whole.begin(), whole.end()).size(), static_cast<std::size_t>(3 * kTrain));
  EXPECT_EQ(std::ssize(whole), 3 * kTrain);
  for (std::int64_t stop = 1; stop < steps; stop += 3) {
    std::vector<std::int32_t> ids = ids_of(data.train, loader, 4, 0, stop);
    const std::vector<std::int32_t> rest = ids_of(data.train, loader, 3, stop, steps);
    ids.insert(ids.end(), rest.begin(), rest.end());
    EXPECT_EQ(ids, whole) << "stopped after step " << stop;
  }
}

TEST_F(Shards, AreReadWithLittleMemoryAndManyWorkers) {
  write();
  const DataSet data = read({.image_size = kSide, .cache_bytes = 1});
  const LoaderOptions loader{.global_batch = 6, .workers = 4, .max_epochs = 3};
  std::int64_t samples = 0;
  DataLoader batches(data.train, loader);
  for (int epoch = 0; epoch < 3; ++epoch)
    for (auto step = batches.next_step(); !step.empty(); step = batches.next_step())
      samples += step.front().ids.numel();
  EXPECT_EQ(samples, 3 * 3 * kTrain);
}

TEST_F(Shards, NameAShardThatIsMissingOrTorn) {
  write();
  fs::remove(shards / "train-000001.tar");
  EXPECT_THAT(error_of_read(), HasSubstr("train-000001.tar: cannot be opened"));
  EXPECT_THAT(error_of_read({.checks_files = false}), HasSubstr("train-000001.tar: cannot be opened"))
      << "in a batch";
  write("again");
  fs::copy_file(directory.path() / "again/train-000001.tar", shards / "train-000001.tar");
  edit("train-000001.tar", [](std::string& bytes) { bytes.resize(bytes.size() - 512); });
  EXPECT_THAT(error_of_read(), AllOf(HasSubstr("train-000001.tar: "), HasSubstr("incomplete")));
  EXPECT_THAT(error_of_read({.checks_files = false}),
              AllOf(HasSubstr("train-000001.tar: "), HasSubstr("incomplete")));
}

/// Counts how often files of a directory whose names end in ".tar" have been opened since its construction.
class OpenCounter {
 public:
  explicit OpenCounter(const fs::path& directory) { inotify_add_watch(events_, directory.c_str(), IN_OPEN); }
  ~OpenCounter() { close(events_); }
  OpenCounter(const OpenCounter&) = delete;
  OpenCounter& operator=(const OpenCounter&) = delete;

  int count() {
    alignas(inotify_event) char buffer[1 << 16];
    for (ssize_t bytes = 0; (bytes = ::read(events_, buffer, sizeof buffer)) > 0;)
      for (ssize_t at = 0; at < bytes;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
        if (event->len > 0 && std::string_view(event->name).ends_with(".tar")) ++count_;
        at += static_cast<ssize_t>(sizeof *event + event->len);
      }
    return count_;
  }

 private:
  int events_ = inotify_init1(IN_NONBLOCK);
  int count_ = 0;
};

TEST_F(Shards, CompareSizesWithoutOpeningShards) {
  const ShardReport report = write();
  OpenCounter opened(shards);
  const DataSet data = read();
  EXPECT_EQ(opened.count(), 0);
  data.train.file(0);
  EXPECT_GT(opened.count(), 0) << "those of the block that is needed";
  read({.skip_corrupt = true});
  EXPECT_GE(opened.count(), report.shards) << "each must be readable, or is left out";
}

TEST_F(Shards, LeaveOutShardsThatAreMissingOrTorn) {
  write();
  const DataSet whole = read();
  std::multiset<std::string> expected;
  const auto files_of = [](const ImageSet& set) {
    std::multiset<std::string> files;
    for (std::int64_t row = 0; row < set.size(); ++row) files.insert(set.file(row));
    return files;
  };
  expected = files_of(whole.train);
  for (const char* name : {"train-000000.tar", "train-000002.tar"})
    for_each_member(shards / name, 1 << 20, 1 << 30,
                    [&](const std::string& path, const std::string&) { expected.erase(path); });
  fs::remove(shards / "train-000000.tar");
  edit("train-000002.tar", [](std::string& bytes) { bytes.resize(1000); });
  const DataSet data = read({.skip_corrupt = true});
  EXPECT_THAT(data.warnings, SizeIs(2));
  EXPECT_THAT(data.warnings.front(), AllOf(HasSubstr("left out "), HasSubstr("train-000000.tar")));
  EXPECT_EQ(files_of(data.train), expected);
  EXPECT_EQ(pass(data), "no DataError");
  std::vector<std::int64_t> counts(3);
  for (std::int64_t row = 0; row < data.train.size(); ++row)
    ++counts[static_cast<std::size_t>(data.train.source->label(row))];
  EXPECT_EQ(class_counts(data.train, 3), counts);
  EXPECT_NE(data.train.source->about().hash, whole.train.source->about().hash)
      << "ranks that found others differ";
}

TEST_F(Shards, NameWhatTheIndexHasWrong) {
  write();
  const std::string index = contents_of(shards / "train.index"), text = contents_of(shards / kShardIndexName);
  const std::int64_t count = parse_shard_index(text, "").splits.front().shards;
  const auto lie = [&](std::size_t sample, std::size_t word, std::uint32_t value) {
    std::string bytes = index;
    std::memcpy(bytes.data() + (static_cast<std::size_t>(count) + sample) * 16 + word * 4, &value, 4);
    directory.write("shards/train.index", bytes);
    return error_of_read();
  };
  EXPECT_THAT(lie(5, 0, 3), AllOf(HasSubstr("train.index: "), HasSubstr("class 3"), HasSubstr("3 classes")));
  EXPECT_THAT(lie(5, 1, 1000), AllOf(HasSubstr("train.index: "), HasSubstr("shard 1000")));
  EXPECT_THAT(lie(5, 2, 1), AllOf(HasSubstr("train.index: "), HasSubstr("sector 1 ")));
  EXPECT_THAT(lie(5, 3, 0xffffffff), AllOf(HasSubstr("train.index: "), HasSubstr("4294967295 bytes")));
  EXPECT_THAT(lie(5, 3, 1),
              AllOf(HasSubstr("train-000000.tar: byte "), HasSubstr("no header of a member of 1 bytes")));
  EXPECT_EQ(lie(5, 0, 0) == lie(5, 0, 1), false);
  directory.write("shards/train.index", index.substr(0, index.size() - 16));
  EXPECT_THAT(error_of_read(), AllOf(HasSubstr("train.index: "), HasSubstr("incomplete")));
  directory.write("shards/train.index", index);
  EXPECT_EQ(error_of_read(), "no DataError");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    directory.write("shards/index.json", changed);
    return error_of_read();
  };
  EXPECT_THAT(replaced("convoy shards 1", "convoy shards 2"), HasSubstr("format 'convoy shards 2'"));
  EXPECT_THAT(replaced("\"samples\": 93", "\"samples\": 94"),
              AllOf(HasSubstr("index.json"), HasSubstr("94 samples")));
  EXPECT_THAT(replaced("{", "["), HasSubstr("no index of shards"));
  for (const char* samples : {"1e30", "18446744073709551709"})  // nlohmann::json reduces the latter to 93
    EXPECT_THAT(replaced("\"samples\": 93", std::string("\"samples\": ") + samples),
                AllOf(HasSubstr("index.json"), HasSubstr("expected an integer of 64 bits")));
  for (const char* name : {"\"other\"", "\"test\"", "\"../../train\""})
    EXPECT_THAT(replaced("\"train\"", name),
                AllOf(HasSubstr("index.json: the splits "), HasSubstr("expected")));
  for (const char* name : {"mean", "std"})
    for (const char* value : {"1e300", "-0.1"}) {
      const std::string key = fmt::format("\"{}\": [", name);
      EXPECT_THAT(replaced(key, fmt::format("{}{}, 0, 0, 0], \"unused\": [", key, value)),
                  AllOf(HasSubstr("index.json: split train"), HasSubstr("statistics of 0 to 1")));
    }
  fs::remove(shards / "index.json");
  EXPECT_THAT(error_of_read(),
              AllOf(HasSubstr("index.json: cannot be opened"), HasSubstr("made by convoy-shard")));
}

TEST_F(Shards, NameAMemberThatIsNotThatOfTheIndex) {
  write();
  edit("train-000000.tar", [](std::string& bytes) { bytes[512] = bytes[512] == '0' ? '1' : '0'; });
  EXPECT_THAT(error_of_read(), AllOf(HasSubstr("train-000000.tar: byte 0: class '"), HasSubstr("expected")));
  edit("train-000000.tar", [](std::string& bytes) { std::fill_n(bytes.begin() + 1024, 512, '\0'); });
  EXPECT_THAT(error_of_read(), AllOf(HasSubstr("train-000000.tar: byte 0: no header of a member")));
  write("again");
  fs::copy_file(directory.path() / "again/train-000000.tar", shards / "train-000000.tar",
                fs::copy_options::overwrite_existing);
  edit("train-000000.tar",
       [](std::string& bytes) { std::fill_n(bytes.begin() + 1536, 40, 'x'); });  // in the image
  EXPECT_THAT(error_of_read(), AllOf(HasSubstr("train-000000.tar: class.")));
}

TEST_F(Shards, RefuseWhatNeedsImagesInMemory) {
  write();
  const DataSet data = read();
  EXPECT_THROW(DataLoader(data.train, {.balance = Tensor::zeros({93}, DType::i32, Device::cpu())}),
               UsageError);
}

TEST(ShardIndex, OfTwoBillionSamplesIsNotRead) {
  const TempDirectory directory;
  constexpr std::int64_t kSamples = 2'000'000'000, kShards = 400;
  constexpr std::uint32_t kSectors = 1 << 30;  // of a shard of 512 GiB: 110 KB of each sample
  ShardSplit split{.name = "train",
                   .shards = kShards,
                   .samples = kSamples,
                   .bytes = kShards * kSectors * kSector,
                   .class_counts = {kSamples / 2, kSamples / 2},
                   .hash = "0"};
  ShardSplit test = split;
  test.name = "test";
  std::vector<ShardFile> shards(kShards, {.sectors = kSectors});
  directory.write("index.json", to_text({.source = "0", .classes = {"a", "b"}, .splits = {split, test}}));
  for (const ShardSplit& each : {split, test}) {
    const fs::path index = directory.write(
        each.index_name(), {reinterpret_cast<const char*>(shards.data()), shards.size() * sizeof shards[0]});
    fs::resize_file(index, each.index_bytes());  // 32 GB without blocks on the disk
  }
  const auto resident = [] {
    std::ifstream status("/proc/self/statm");
    std::int64_t size = 0, pages = 0;
    status >> size >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  };
  const std::int64_t before = resident();
  const DataSet data = read_shards(directory.path(), {.image_size = 32, .checks_files = false});
  EXPECT_EQ(data.train.size(), kSamples);
  DataLoader loader(data.train, {.global_batch = 256, .workers = 0});
  loader.seek(3, loader.steps_per_epoch() / 2);
  EXPECT_THAT(testing::message_of<DataError>([&] { loader.next_step(); }),
              HasSubstr("train.index: a sample of class 0 with 0 bytes"));
  EXPECT_LT(resident() - before, std::int64_t{100} << 20);
}

class ShardsByHttp : public Shards {
 protected:
  ShardsByHttp() { write(); }

  HttpReply reply(const HttpRequest& request) const {
    if (!fs::exists(directory.path() / request.path.substr(1))) return {.status = 404};
    return testing::serve(request, contents_of(directory.path() / request.path.substr(1)));
  }
  /// Returns the error of reading from a server, with its type.
  std::string error_by(const HttpServer::Handler& handler) const {
    HttpServer server(handler);
    server.start();
    try {
      const DataSet data = read_shards(server.url("/shards"), read_options());
      DataLoader loader(data.train, {.global_batch = 8, .workers = 1, .max_epochs = 1});
      while (!loader.next_step().empty()) {
      }
    } catch (const DataError& error) {
      return std::string("3: ") + error.what();
    } catch (const StorageError& error) {
      return std::string("9: ") + error.what();
    }
    return "none";
  }
  static ReadOptions read_options() {
    return {.image_size = kSide, .http = {.attempts = 3, .backoff_ms = 1, .stall_seconds = 1}};
  }
};

TEST_F(ShardsByHttp, GiveTheSameBatches) {
  HttpServer server([&](const HttpRequest& request) {
    HttpReply part = reply(request);
    if (request.number % 3 == 1) part.hang_up_after = std::ssize(part.body) / 2;  // a lost connection
    if (request.number == 8) part = {.status = 503};
    return part;
  });
  server.start();
  const DataSet found = read_shards(server.url("/shards/index.json"), read_options()), expected = read();
  const LoaderOptions loader{.global_batch = 10, .max_epochs = 1};
  EXPECT_EQ(pixels_by_file(found.train, loader), pixels_by_file(expected.train, loader));
}

TEST_F(ShardsByHttp, NameAServerThatCannotBeReached) {
  // Not a DataError, with which skip_corrupt would leave out all shards. RFC 2606: the name never resolves.
  EXPECT_THAT(
      testing::message_of<StorageError>([&] { read_shards("http://host.invalid/shards", read_options()); }),
      AllOf(HasSubstr("http://host.invalid/shards/index.json"), HasSubstr("(3 attempts)")));
  EXPECT_THAT(testing::message_of<DataError>([&] { read_shards("http://127.0.0.1/a b", read_options()); }),
              AllOf(HasSubstr("http://127.0.0.1/a b/index.json"), HasSubstr("%20")));
}

TEST_F(ShardsByHttp, NameAServerThatFails) {
  const auto with = [&](const auto& change) {
    return error_by([this, change](const HttpRequest& request) {
      HttpReply part = reply(request);
      if (request.path == "/shards/train-000001.tar") change(part);
      return part;
    });
  };
  EXPECT_EQ(with([](HttpReply&) {}), "none");
  EXPECT_THAT(with([](HttpReply& part) { part = {.status = 404}; }),
              AllOf(HasSubstr("3: "), HasSubstr("train-000001.tar: HTTP 404")));
  EXPECT_THAT(with([](HttpReply& part) { part = {.status = 500}; }),
              AllOf(HasSubstr("9: "), HasSubstr("train-000001.tar"), HasSubstr("HTTP 500 (3 attempts)")));
  EXPECT_THAT(with([](HttpReply& part) { part.hang_up_after = 0; }),
              AllOf(HasSubstr("9: "), HasSubstr("train-000001.tar")));
  EXPECT_THAT(with([](HttpReply& part) { part.stall_after = 0; }),
              AllOf(HasSubstr("9: "), HasSubstr("no byte for 1 s")));
  EXPECT_THAT(with([](HttpReply& part) { part.body.pop_back(); }),
              AllOf(HasSubstr("9: "), HasSubstr("ends after 0 of 1 bytes")))
      << "a body that is shorter than its range";
  EXPECT_THAT(with([](HttpReply& part) { part.body += "more"; }),
              AllOf(HasSubstr("9: "), HasSubstr("more than 1 bytes")));
  EXPECT_THAT(with([](HttpReply& part) { part.status = 200, part.headers = ""; }),
              AllOf(HasSubstr("3: "), HasSubstr("HTTP 200, expected 206")))
      << "a server without ranges";
  EXPECT_THAT(with([](HttpReply& part) {
                part.headers.replace(part.headers.find('/') + 1, std::string::npos, "*\r\n");
              }),
              AllOf(HasSubstr("9: "), HasSubstr("HTTP 206 with bytes from 0 of -1")))
      << "an unknown size";
  EXPECT_THAT(with([](HttpReply& part) { part.headers.insert(part.headers.size() - 2, "0"); }),
              AllOf(HasSubstr("3: "), HasSubstr("train-000001.tar: "), HasSubstr("incomplete")))
      << "another size";
}

}  // namespace
}  // namespace convoy::data
