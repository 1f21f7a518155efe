// Tests of directories of images: layouts, the split, sizes, and corrupt files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "convoy/datasets/formats/readers.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/image_files.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;
using testing::Picture;
using testing::TempDirectory;

/// Returns a constant image, which is identified by its gray value.
std::string picture(int value, int width = 4, int height = 4) {
  return testing::png(Picture::plain(width, height, 3, static_cast<std::uint8_t>(value)));
}

/// Returns the first value of each image.
std::vector<int> values(const data::ImageSet& set) {
  const std::vector<std::uint8_t> pixels = set.images.to_vector<std::uint8_t>();
  std::vector<int> result;
  const std::size_t step = pixels.size() / static_cast<std::size_t>(set.size());
  for (std::size_t at = 0; at < pixels.size(); at += step) result.push_back(pixels[at]);
  return result;
}

std::vector<int> labels(const data::ImageSet& set) {
  const std::vector<std::int32_t> held = set.labels.to_vector<std::int32_t>();
  return {held.begin(), held.end()};
}

TEST(ImageFolder, ReadsTrainAndTestInSortedOrder) {
  for (const auto& [train, test] : {std::pair("train", "test"), std::pair("Training", "val"),
                                    std::pair("Train", "Validation"), std::pair("training", "Testing")}) {
    const TempDirectory directory;
    directory.write(fs::path(train) / "zebra" / "b.png", picture(4));
    directory.write(fs::path(train) / "zebra" / "a.BMP", testing::bmp(Picture::plain(4, 4, 3, 3)));
    directory.write(fs::path(train) / "ape" / "2.png", picture(2));
    directory.write(fs::path(train) / "ape" / "10.png", picture(1));
    directory.write(fs::path(test) / "ape" / "deeper" / "1.png", picture(5));
    directory.write(fs::path(test) / "zebra" / "1.JPEG", testing::jpeg(Picture::plain(4, 4, 3, 128)));
    directory.write(fs::path(test) / "zebra" / ".hidden.png", "not read");
    directory.write(fs::path(test) / "zebra" / "notes.txt", "not read");
    directory.write(fs::path(test) / ".git" / "x.png", "not read");
    const data::DataSet data = data::read_image_folder(directory.path());
    EXPECT_EQ(data.classes, (std::vector<std::string>{"ape", "zebra"}));
    EXPECT_EQ(values(data.train), (std::vector<int>{1, 2, 3, 4}));
    EXPECT_EQ(labels(data.train), (std::vector<int>{0, 0, 1, 1}));
    EXPECT_EQ(values(data.test), (std::vector<int>{5, 128}));
    EXPECT_EQ(labels(data.test), (std::vector<int>{0, 1}));
    EXPECT_EQ(data.image_shape(), (Shape{4, 4, 3}));
    EXPECT_THAT(data.warnings, ::testing::ElementsAre(AllOf(
                                   HasSubstr("left out: files of other types: 1 (.txt 1); hidden files"),
                                   HasSubstr("directories: 2 ("), HasSubstr("zebra/.hidden.png"))));
    EXPECT_THAT(data.train.files[0], ::testing::EndsWith("/ape/10.png"));
    EXPECT_EQ(data.test.files[0], std::string(test) + "/ape/deeper/1.png");
  }
}

TEST(ImageFolder, KeepsASharedSizeAndOtherwiseResizesTo224) {
  const TempDirectory directory;
  for (int i = 0; i < 4; ++i) directory.write(fs::path("a") / (std::to_string(i) + ".png"), picture(i, 6, 3));
  EXPECT_EQ(data::read_image_folder(directory.path()).image_shape(), (Shape{3, 6, 3}));
  const data::DataSet given = data::read_image_folder(directory.path(), {.image_size = 5});
  EXPECT_EQ(given.image_shape(), (Shape{5, 5, 3}));
  EXPECT_EQ(given.chosen_size, 0);
  EXPECT_TRUE(given.warnings.empty());
  EXPECT_THAT(given.note, HasSubstr(" (4 of 4 images scaled and cropped to 5 x 5 pixels)"));
  directory.write("a/9.png", picture(9, 3, 6));
  const data::DataSet data = data::read_image_folder(directory.path());
  EXPECT_EQ(data.image_shape(), (Shape{224, 224, 3}));
  EXPECT_EQ(data.chosen_size, 224);
  EXPECT_THAT(data.warnings, ::testing::ElementsAre(HasSubstr(
                                 "(5 of 5 images scaled and cropped to 224 x 224 pixels); image_size sets")));
  EXPECT_EQ(data.train.size() + data.test.size(), 5);
}

TEST(ImageFolder, CountsImagesThatTheDecoderReducesAsScaled) {
  const TempDirectory directory;
  for (const char* name : {"1.jpg", "2.jpg"})
    directory.write(fs::path("a") / name, testing::jpeg(Picture::plain(8, 8, 3, 128)));
  EXPECT_THAT(data::read_image_folder(directory.path(), {.image_size = 4}).note,
              HasSubstr(" (2 of 2 images scaled and cropped to 4 x 4 pixels)"));
}

TEST(ImageFolder, CountsFilesOfOtherTypes) {
  const TempDirectory directory;
  for (const char* split : {"train", "test"})
    for (const char* name : {"1.png", "1.gif", "2.GIF", "deeper/3.gif", "notes.txt", "README", ".hidden"})
      directory.write(fs::path(split) / "ape" / name, picture(1));
  const data::DataSet data = data::read_image_folder(directory.path());
  EXPECT_EQ(data.train.size() + data.test.size(), 2);
  EXPECT_THAT(data.warnings,
              ::testing::ElementsAre(::testing::StartsWith(
                  "left out: files of other types: 10 (.gif 6, .txt 2, without extension 2); hidden")));
}

TEST(ImageFolder, CountsWhatItDoesNotUse) {
  const TempDirectory directory;
  for (const char* name : {"train/ape/1.png", "train/bee/1.png", "test/ape/1.png", "test/bee/1.png", "1.png",
                           "train/2.png", "extra/a/1.png", "extra/2.png", "__MACOSX/ape/1.png",
                           "train/ape/@eaDir/1.png", "train/.ipynb_checkpoints/1.png"})
    directory.write(name, picture(1));
  for (int i = 0; i < 7; ++i)
    fs::create_symlink("/none.png", directory.path() / "train/bee" / ("gone" + std::to_string(i) + ".png"));
  fs::create_symlink("/none", directory.path() / "train/cat");
  fs::create_symlink("self", directory.path() / "test/self");
  fs::create_symlink(directory.path() / "train/ape/1.png", directory.path() / "train/ape/linked.png");
  ASSERT_EQ(mkfifo((directory.path() / "test/bee/pipe.png").c_str(), 0600), 0);
  const data::DataSet data = data::read_image_folder(directory.path());
  EXPECT_EQ(data.train.size(), 3) << "a link to an image is one";
  ASSERT_EQ(data.warnings.size(), 1u) << "one line";
  const std::string gone = (directory.path() / "train/bee/gone0.png").string();
  EXPECT_THAT(
      data.warnings[0],
      AllOf(HasSubstr("dangling links: 9 ("), HasSubstr(gone + " -> /none.png, "), HasSubstr(", …); "),
            HasSubstr("entries that are no files and no directories: 1 ("),
            HasSubstr("hidden files and directories: 3 ("),
            HasSubstr("images outside the class directories: 2"),
            HasSubstr("other directories: 1 (" + (directory.path() / "extra").string() + " with 2 images)")));
  for (int i = 0; i < 2; ++i) fs::remove(directory.path() / (i == 0 ? "train" : "test") / "ape/1.png");
  fs::remove(directory.path() / "train/ape/linked.png");
  fs::create_symlink("/none.png", directory.path() / "train/ape/1.png");
  EXPECT_THAT(message_of<DataError>([&] { data::read_image_folder(directory.path()); }),
              AllOf(HasSubstr("train/ape: no JPEG, PNG"), HasSubstr("dangling links: 2")));
}

TEST(ImageFolder, TakesAThirdSplitAsValidationImages) {
  for (const char* name : {"val", "Validation"}) {
    const TempDirectory directory;
    const auto add = [&](const std::string& file, int value) { directory.write(file, picture(value)); };
    for (const char* label : {"ape", "bee"}) {
      add(fs::path("train") / label / "1.png", 1);
      add(fs::path("test") / label / "1.png", 2);
      add(fs::path(name) / label / "1.png", 3);
    }
    add(fs::path(name) / "bee" / "2.png", 4);
    const data::DataSet data = data::read_image_folder(directory.path());
    EXPECT_EQ(values(data.validation), (std::vector<int>{3, 3, 4}));
    EXPECT_EQ(labels(data.validation), (std::vector<int>{0, 1, 1}));
    EXPECT_EQ(data.validation.files[2], std::string(name) + "/bee/2.png");
    EXPECT_EQ(values(data.test), (std::vector<int>{2, 2}));
    EXPECT_TRUE(data.warnings.empty());
    const data::DataSet without =
        data::read_image_folder(directory.path(), {.use_validation_directory = false});
    EXPECT_EQ(without.validation.size(), 0);
    EXPECT_THAT(without.warnings, ::testing::ElementsAre(HasSubstr("left out: other directories: 1 (")));
    EXPECT_THAT(without.warnings[0], HasSubstr(std::string(name) + " with 3 images)"));
    add(fs::path(name) / "cow" / "1.png", 5);
    EXPECT_THAT(message_of<DataError>([&] { data::read_image_folder(directory.path()); }),
                HasSubstr("missing in train: cow; missing in " + std::string(name) + ": none"));
  }
}

TEST(ImageFolder, RefusesClassesOneDirectoryTooDeep) {
  const TempDirectory directory;
  const auto refusal = [&](const std::string& root) {
    return message_of<DataError>([&] { data::read_image_folder(directory.path() / root); });
  };
  for (const char* label : {"apples", "leaves", "plums"}) {
    directory.write(fs::path("one/photos") / label / "1.png", picture(1));
    directory.write(fs::path("two/a/b") / label / "1.png", picture(1));
    for (const char* split : {"train", "test"}) {
      directory.write(fs::path("three/photos") / split / label / "1.png", picture(1));
      directory.write(fs::path("four") / split / "photos" / label / "1.png", picture(1));
    }
  }
  directory.write("one/__MACOSX/photos/._1.png", "?");
  EXPECT_THAT(refusal("one"),
              AllOf(HasSubstr("one: 1 class (photos), which itself has directories apples, leaves, "
                              "plums; did you mean the directory "),
                    ::testing::EndsWith("one/photos?")));
  EXPECT_THAT(refusal("two"), AllOf(HasSubstr("1 class (a/b), "), HasSubstr("two/a/b?")));
  EXPECT_THAT(refusal("three"), AllOf(HasSubstr("directories test, train; "), HasSubstr("three/photos?")));
  EXPECT_THAT(refusal("four"),
              HasSubstr("four/train: 1 class (photos), which itself has directories apples, leaves, "
                        "plums; expected one directory per class"));
  directory.write("one/photos/own.png", picture(1));
  EXPECT_EQ(data::read_image_folder(directory.path() / "one").classes, std::vector<std::string>{"photos"});
}

class SplitDirectory : public ::testing::Test {
 protected:
  SplitDirectory() {
    for (int i = 0; i < 20; ++i) {
      directory_.write("ants/" + std::to_string(100 + i) + ".png", picture(i));
      directory_.write("bees/" + std::to_string(100 + i) + ".png", picture(100 + i));
    }
  }
  TempDirectory directory_;
};

TEST_F(SplitDirectory, SplitsEachClassWithoutLoss) {
  const data::DataSet data = data::read_image_folder(directory_.path(), {.test_fraction = 0.25});
  const std::vector<int> test_labels = labels(data.test);
  EXPECT_EQ(std::count(test_labels.begin(), test_labels.end(), 0), 5);
  EXPECT_EQ(std::count(test_labels.begin(), test_labels.end(), 1), 5);
  std::vector<int> all = values(data.train);
  for (const int value : values(data.test)) all.push_back(value);
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 40u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(all[static_cast<std::size_t>(20 + i)], 100 + i);
  }
  for (std::size_t i = 0; i < test_labels.size(); ++i)
    EXPECT_EQ(test_labels[i], values(data.test)[i] >= 100 ? 1 : 0);
}

TEST_F(SplitDirectory, DependsOnlyOnTheSeed) {
  const auto test_of = [&](std::uint64_t seed, int workers) {
    return values(data::read_image_folder(directory_.path(), {.workers = workers, .seed = seed}).test);
  };
  EXPECT_EQ(test_of(1, 1), test_of(1, 3));
  EXPECT_NE(test_of(1, 1), test_of(2, 1));
}

TEST_F(SplitDirectory, LeavesAtLeastOneImageOnEachSide) {
  EXPECT_EQ(data::read_image_folder(directory_.path(), {.test_fraction = 0.001}).test.size(), 2);
  EXPECT_EQ(data::read_image_folder(directory_.path(), {.test_fraction = 0.999}).train.size(), 2);
  directory_.write("crab/1.png", picture(200));
  EXPECT_THAT(message_of<DataError>([&] { data::read_image_folder(directory_.path()); }),
              AllOf(HasSubstr("crab"), HasSubstr("at least 2")));
}

TEST_F(SplitDirectory, TreatsADirectoryTrainWithImagesAsAClass) {
  directory_.write("train/1.png", picture(201));
  directory_.write("train/2.png", picture(202));
  EXPECT_EQ(data::read_image_folder(directory_.path()).classes,
            (std::vector<std::string>{"ants", "bees", "train"}));
}

TEST(ImageFolder, RefusesDirectoriesWithoutADataSet) {
  const TempDirectory directory;
  const auto refusal = [&] {
    return message_of<DataError>([&] { data::read_image_folder(directory.path()); });
  };
  EXPECT_THAT(refusal(), AllOf(HasSubstr(directory.path().string()), HasSubstr("no directories")));
  EXPECT_THAT(message_of<DataError>([&] { data::read_image_folder(directory.path() / "none"); }),
              HasSubstr("no such directory"));
  const fs::path file = directory.write("file.png", picture(1));
  EXPECT_THAT(message_of<DataError>([&] { data::read_image_folder(file); }),
              HasSubstr("expected a directory"));

  directory.write("train/a/1.png", picture(1));
  EXPECT_THAT(refusal(), HasSubstr("a train directory without a test directory"));
  directory.write("test/a/1.png", picture(1));
  directory.write("test/b/1.png", picture(1));
  directory.write("train/c/1.png", picture(1));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("missing in train: b"), HasSubstr("missing in test: c")));
  directory.write("train/b/readme.txt", "no image");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr((directory.path() / "train" / "b").string()), HasSubstr("no JPEG, PNG")));
}

TEST(ImageFolder, RefusesAnUnreadableDirectory) {
  if (geteuid() == 0) GTEST_SKIP() << "needs another user than root, who may read everything";
  const TempDirectory directory;
  directory.write("a/1.png", picture(1));
  fs::permissions(directory.path() / "a", fs::perms::none);
  const std::string message = message_of<DataError>([&] { data::read_image_folder(directory.path()); });
  fs::permissions(directory.path() / "a", fs::perms::owner_all);
  EXPECT_THAT(message, HasSubstr((directory.path() / "a").string()));
}

TEST(ImageFolder, RefusesCyclicDirectories) {
  const TempDirectory directory;
  directory.write("a/1.png", picture(1));
  fs::create_directory_symlink(directory.path() / "a", directory.path() / "a" / "again");
  EXPECT_THAT(message_of<DataError>([&] { data::read_image_folder(directory.path()); }),
              HasSubstr("directories deep"));
}

class CorruptDirectory : public ::testing::Test {
 protected:
  CorruptDirectory() {
    for (const char* split : {"train", "test"})
      for (int i = 0; i < 6; ++i) {
        directory_.write(fs::path(split) / "a" / (std::to_string(i) + ".png"), picture(i));
        directory_.write(fs::path(split) / "b" / (std::to_string(i) + ".png"), picture(10 + i));
      }
    // The first file, a truncated one, one of another format, one that was removed; and a test image.
    directory_.write("train/a/0.png", "");
    directory_.write("train/a/3.png", picture(3).substr(0, 50));
    directory_.write("train/b/2.png", "GIF89a");
    fs::create_symlink("nowhere.png", directory_.path() / "train" / "b" / "gone.png");
    directory_.write("test/b/5.png", std::string(1000, 'x'));
  }
  TempDirectory directory_;
};

TEST_F(CorruptDirectory, IsRefusedWithACountAndTheFlagToUse) {
  const std::string message = message_of<DataError>([&] { data::read_image_folder(directory_.path()); });
  EXPECT_THAT(message,
              AllOf(HasSubstr("4 of 24 images"), HasSubstr("skip_corrupt"), HasSubstr("train/a/0.png"),
                    HasSubstr("train/a/3.png"), HasSubstr("train/b/2.png"), HasSubstr("…")));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST_F(CorruptDirectory, IsReadWithoutCorruptImagesOnRequest) {
  for (const int size : {0, 4})
    for (const int workers : {0, 1, 3}) {
      const data::DataSet data = data::read_image_folder(
          directory_.path(), {.image_size = size, .skip_corrupt = true, .workers = workers});
      EXPECT_EQ(values(data.train), (std::vector<int>{1, 2, 4, 5, 10, 11, 13, 14, 15}));
      EXPECT_EQ(labels(data.train), (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1, 1}));
      EXPECT_EQ(values(data.test), (std::vector<int>{0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14}));
      ASSERT_EQ(data.warnings.size(), 5u);
      EXPECT_THAT(data.warnings[4], HasSubstr("left out: dangling links: 1 ("));
      EXPECT_THAT(data.warnings[0], HasSubstr("train/a/0.png"));
      EXPECT_THAT(data.warnings[3], HasSubstr("test/b/5.png"));
    }
}

TEST_F(CorruptDirectory, IsRefusedIfAClassHasNoReadableImage) {
  for (int i = 0; i < 6; ++i) directory_.write(fs::path("train/b") / (std::to_string(i) + ".png"), "?");
  EXPECT_THAT(
      message_of<DataError>([&] { data::read_image_folder(directory_.path(), {.skip_corrupt = true}); }),
      AllOf(HasSubstr(directory_.path().string()), HasSubstr("class b")));
}

}  // namespace
}  // namespace convoy
