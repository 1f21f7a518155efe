// Tests of the cache of decoded images: the same images, several ranks, files that cannot be used, and failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

#include "convoy/datasets/cache/image_cache.h"
#include "convoy/datasets/formats/readers.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/image_files.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::Picture;
using testing::TempDirectory;

void overwrite(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

/// Ranks that are threads of this process. After abort(), waiting and later calls throw PeerError.
class ThreadHost {
 public:
  explicit ThreadHost(int size) : texts_(static_cast<std::size_t>(size)) {}

  data::HostRanks of(int rank) {
    return {.rank = rank,
            .size = static_cast<int>(texts_.size()),
            .all_gather = [this, rank](const std::string& local) { return all_gather(rank, local); }};
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    changed_.notify_all();
  }
  /// Calls `body` on all ranks, and returns the messages of the exceptions that it throws.
  std::vector<std::string> run(const std::function<void(const data::HostRanks&)>& body) {
    std::vector<std::string> errors(texts_.size());
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < std::ssize(texts_); ++rank)
        threads.emplace_back([&, rank] {
          try {
            body(of(rank));
          } catch (const std::exception& error) {
            errors[static_cast<std::size_t>(rank)] = error.what();
            abort();
          }
        });
    }
    return errors;
  }

 private:
  std::vector<std::string> all_gather(int rank, const std::string& local) {
    std::unique_lock lock(mutex_);
    texts_[static_cast<std::size_t>(rank)] = local;
    const int round = round_;
    if (++arrived_ == std::ssize(texts_)) {
      gathered_ = texts_;
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || is_aborted_; });
    if (round_ == round) throw PeerError("another rank failed");
    return gathered_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_, gathered_;
  int arrived_ = 0, round_ = 0;
  bool is_aborted_ = false;
};

class ImageCacheTest : public ::testing::Test {
 protected:
  ImageCacheTest() {
    for (const char* split : {"train", "test"})
      for (int i = 0; i < 5; ++i) {
        write(split, "a", i, 10 * i);
        write(split, "b", i, 100 + 10 * i);
      }
  }

  void write(const char* split, const char* label, int number, int value) const {
    images_.write(fs::path(split) / label / (std::to_string(number) + ".png"),
                  testing::png(Picture::plain(6, 4, 3, static_cast<std::uint8_t>(value))));
  }
  /// Reads with the cache; the side of the images is 4 pixels.
  data::DataSet read(data::ReadOptions options = {}) const {
    options.image_cache = cache();
    if (options.image_size == 0) options.image_size = 4;
    return data::read_image_folder(images_.path(), options);
  }
  fs::path cache() const { return place_.path() / "cache"; }
  /// Returns the only file of the cache.
  fs::path file() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(cache())) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u) << "temporary files are left";
    return files.empty() ? fs::path() : files.front();
  }

  TempDirectory images_, place_;
};

void expect_equal(const data::DataSet& found, const data::DataSet& expected) {
  for (const auto& [a, b] :
       {std::pair(&found.train, &expected.train), std::pair(&found.test, &expected.test)}) {
    EXPECT_EQ(a->images.shape(), b->images.shape());
    EXPECT_EQ(a->images.to_vector<std::uint8_t>(), b->images.to_vector<std::uint8_t>());
    EXPECT_EQ(a->labels.to_vector<std::int32_t>(), b->labels.to_vector<std::int32_t>());
  }
  EXPECT_EQ(found.classes, expected.classes);
  EXPECT_EQ(found.chosen_size, expected.chosen_size);
}

TEST_F(ImageCacheTest, HasTheSameImagesAndLaterReadsDecodeNothing) {
  const data::DataSet expected = data::read_image_folder(images_.path(), {.image_size = 4});
  expect_equal(read(), expected);
  // Other bytes under the same size and time: decoding them fails.
  for (const auto& entry : fs::recursive_directory_iterator(images_.path())) {
    if (!entry.is_regular_file()) continue;
    const auto time = entry.last_write_time();
    overwrite(entry.path(), std::string(entry.file_size(), '?'));
    fs::last_write_time(entry.path(), time);
  }
  const data::DataSet again = read();
  expect_equal(again, expected);
  EXPECT_THAT(again.warnings, IsEmpty());
  EXPECT_THAT(again.note, AllOf(HasSubstr("(20 of 20 images scaled and cropped to 4 x 4 pixels)"),
                                HasSubstr("image cache " + file().string())));
  EXPECT_THROW(read({.image_size = 5}), DataError) << "a cache of another size was used";
}

TEST_F(ImageCacheTest, KeepsTheChosenSizeOfImagesOfDifferentSizes) {
  images_.write("train/a/9.png", testing::png(Picture::plain(5, 5, 3, 7)));
  const data::DataSet expected = data::read_image_folder(images_.path());
  EXPECT_EQ(expected.chosen_size, 224);
  for (int start = 0; start < 2; ++start) {
    const data::DataSet found = data::read_image_folder(images_.path(), {.image_cache = cache()});
    expect_equal(found, expected);
    EXPECT_EQ(found.warnings, expected.warnings);
  }
}

TEST_F(ImageCacheTest, IsMadeAgainIfAFileChanges) {
  read();
  const fs::path image = images_.path() / "train/b/4.png";
  const auto change_time = [&] {
    fs::last_write_time(image, fs::last_write_time(image) + std::chrono::hours(1));
  };
  const auto change_pixels = [&] { write("train", "b", 4, 255); };
  const auto add = [&] { write("test", "a", 7, 77); };
  const auto remove = [&] { fs::remove(images_.path() / "train/a/0.png"); };
  for (const std::function<void()>& change :
       std::initializer_list<std::function<void()>>{change_time, change_pixels, add, remove}) {
    change();
    const data::DataSet found = read();
    expect_equal(found, data::read_image_folder(images_.path(), {.image_size = 4}));
    EXPECT_THAT(found.warnings,
                ElementsAre(file().string() +
                            ": made from other files, or by another decoder; the images were decoded again"));
    EXPECT_THAT(read().warnings, IsEmpty());
  }
}

TEST_F(ImageCacheTest, OfADrawnSplitBelongsToItsSeed) {
  fs::remove_all(images_.path() / "test");
  fs::rename(images_.path() / "train" / "a", images_.path() / "a");
  fs::rename(images_.path() / "train" / "b", images_.path() / "b");
  fs::remove(images_.path() / "train");
  for (int start = 0; start < 2; ++start)
    for (const std::uint64_t seed : {1, 2, 3}) {
      const data::DataSet found = read({.seed = seed});
      expect_equal(found, data::read_image_folder(images_.path(), {.image_size = 4, .seed = seed}));
      EXPECT_THAT(found.warnings, IsEmpty());
    }
}

TEST_F(ImageCacheTest, IsMadeAgainIfItIsDamagedOrForeign) {
  const data::DataSet expected = data::read_image_folder(images_.path(), {.image_size = 4});
  read();
  const fs::path path = file();
  const std::string whole = testing::contents_of(path);
  std::vector<std::string> others = {"", "{}", testing::png(Picture::plain(2, 2, 3, 1)),
                                     std::string(5000, '\0'), whole + "x"};
  for (const std::size_t size :
       {std::size_t{7}, std::size_t{100}, std::size_t{4096}, whole.size() / 2, whole.size() - 1})
    others.push_back(whole.substr(0, size));
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, whole.find("convoy"), whole.find("[20,") + 1,
                               std::size_t{4096}, whole.size() / 2, whole.size() - 1}) {
    others.push_back(whole);
    others.back()[at] = static_cast<char>(others.back()[at] ^ 1);
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    overwrite(path, others[i]);
    overwrite(path.string() + ".part", "of a process that was killed");
    const data::DataSet found = read();
    expect_equal(found, expected);
    ASSERT_EQ(found.warnings.size(), 1u) << i;
    EXPECT_THAT(found.warnings[0],
                AllOf(HasSubstr(path.string() + ": "), HasSubstr("; the images were decoded again")));
    EXPECT_EQ(testing::contents_of(file()), whole) << i;
  }
}

TEST_F(ImageCacheTest, LeavesOutCorruptImagesAsWithoutCache) {
  images_.write("train/a/0.png", "");
  images_.write("train/b/2.png", "no image");
  images_.write("test/b/4.png", "GIF89a");
  const data::ReadOptions skip = {.image_size = 4, .skip_corrupt = true};
  const data::DataSet expected = data::read_image_folder(images_.path(), skip);
  const auto refusal = [](const auto& reader) { return message_of<DataError>(reader); };
  const std::string error = refusal([&] { data::read_image_folder(images_.path(), {.image_size = 4}); });
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(refusal([&] { read(); }), error);
    const data::DataSet found = read(skip);
    expect_equal(found, expected);
    EXPECT_EQ(found.warnings, expected.warnings);
    EXPECT_EQ(found.train.size() + found.test.size(), 17);
  }
}

TEST_F(ImageCacheTest, IsWrittenByAllRanksOfAHost) {
  images_.write("train/a/0.png", "corrupt");
  images_.write("test/b/4.png", "corrupt");
  const data::DataSet expected =
      data::read_image_folder(images_.path(), {.image_size = 4, .skip_corrupt = true});
  for (int start = 0; start < 2; ++start) {
    std::vector<data::DataSet> found(3);
    const std::vector<std::string> errors = ThreadHost(3).run([&](const data::HostRanks& host) {
      found[static_cast<std::size_t>(host.rank)] = read({.skip_corrupt = true, .host = host});
    });
    EXPECT_THAT(errors, ElementsAre("", "", ""));
    for (const data::DataSet& each : found) {
      expect_equal(each, expected);
      EXPECT_EQ(each.warnings, expected.warnings);
    }
    file();
  }
}

TEST_F(ImageCacheTest, DividesTheFilesAmongRanks) {
  const fs::path path = place_.path() / "cache.safetensors";
  constexpr std::int64_t kFiles = 10;
  const std::vector<std::string> errors = ThreadHost(4).run([&](const data::HostRanks& host) {
    data::ImageCache cache(path, "key", host, {});
    EXPECT_FALSE(cache.open());
    std::uint8_t* const images = cache.create({kFiles, 1, 1, 3});
    for (std::int64_t i = cache.begin(kFiles); i < cache.end(kFiles); ++i)
      for (std::int64_t c = 0; c < 3; ++c) images[3 * i + c] = static_cast<std::uint8_t>(10 * host.rank + i);
    const data::DecodedImages sum = cache.finish(*cache.gather(data::DecodedImages{.resized = 2}));
    EXPECT_EQ(sum.resized, 8);
    EXPECT_EQ(sum.images.slice(0, {6}).to_vector<std::uint8_t>(),
              (std::vector<std::uint8_t>{0, 0, 0, 1, 1, 1}));
    std::vector<int> values;
    for (std::int64_t i = 0; i < kFiles; ++i) values.push_back(sum.images.view().as<std::uint8_t>()[3 * i]);
    EXPECT_EQ(values, (std::vector<int>{0, 1, 12, 13, 14, 25, 26, 37, 38, 39}));
  });
  EXPECT_THAT(errors, ElementsAre("", "", "", ""));
}

TEST_F(ImageCacheTest, EndsAllRanksAndKeepsTheEarlierFileIfOneFails) {
  const fs::path path = place_.path() / "cache.safetensors";
  overwrite(path, "an earlier file");
  for (const int failing : {0, 1, 2}) {
    const std::vector<std::string> errors = ThreadHost(3).run([&](const data::HostRanks& host) {
      data::ImageCache cache(path, "key", host, {});
      EXPECT_FALSE(cache.open());
      cache.create({10, 1, 1, 3});
      if (host.rank == failing) throw DataError("this rank failed");
      cache.finish(*cache.gather(data::DecodedImages()));
    });
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(errors[static_cast<std::size_t>(rank)],
                rank == failing ? "this rank failed" : "another rank failed");
    EXPECT_EQ(testing::contents_of(path), "an earlier file");
    EXPECT_EQ(std::distance(fs::directory_iterator(place_.path()), {}), 1) << "temporary files are left";
  }
}

TEST_F(ImageCacheTest, IsRefusedByAllRanksIfTheirFilesDiffer) {
  const std::vector<std::string> errors = ThreadHost(3).run([&](const data::HostRanks& host) {
    data::ImageCache(place_.path() / "cache.safetensors", host.rank == 2 ? "other" : "key", host, {}).open();
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error,
                HasSubstr("cache.safetensors: local rank 2 found other image files than local rank 0"));
}

TEST_F(ImageCacheTest, ReportsAFullDiskBeforeItDecodes) {
  read();
  const std::string earlier = testing::contents_of(file());
  write("train", "a", 1, 99);
  // A limit of the size of files stands for a full disk: both refuse to reserve blocks.
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {.rlim_cur = 4500, .rlim_max = limit.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<OutputError>([&] { read(); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, AllOf(HasSubstr(cache().string()), HasSubstr("cannot be reserved: File too large"),
                             HasSubstr("change the directory of the cache")));
  EXPECT_EQ(testing::contents_of(file()), earlier);
}

TEST_F(ImageCacheTest, ReportsADirectoryThatCannotBeWritten) {
  overwrite(cache(), "a file");
  EXPECT_THAT(message_of<OutputError>([&] { read(); }), HasSubstr(cache().string()));
}

TEST_F(ImageCacheTest, WaitsForAnotherProcessThatWritesIt) {
  read();
  const data::DataSet expected = read();
  const fs::path path = file(), aside = place_.path() / "aside";
  fs::rename(path, aside);
  std::optional<io::FileLock> other(std::in_place, path.string() + ".lock", nullptr);
  std::int64_t holder = 0;
  const data::DataSet found = read({.waiting = [&](std::int64_t process) {
    holder = process;
    fs::rename(aside, path);  // the other process completes the file
    std::jthread([&] { other.reset(); }).join();
  }});
  EXPECT_EQ(holder, getpid());
  expect_equal(found, expected);
  EXPECT_THAT(found.warnings, IsEmpty());
}

}  // namespace
}  // namespace convoy
