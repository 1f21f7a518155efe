// The table of data sets: lookup by name, and consistency of its rows with the readers.
#include "convoy/datasets/formats/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/testing/support/errors.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

TEST(DatasetRegistry, FindsEveryEntryByItsName) {
  std::set<std::string_view> names;
  for (const data::DatasetEntry& entry : data::all_datasets()) {
    EXPECT_EQ(&data::find_dataset(entry.name), &entry);
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " is in the table twice";
    EXPECT_NE(entry.read, nullptr) << entry.name;
  }
  EXPECT_EQ(data::dataset_names().size(), names.size());
}

TEST(DatasetRegistry, RefusesAnUnknownNameWithASuggestion) {
  const std::string message = message_of<UsageError>([] { data::find_dataset("cifar100"); });
  EXPECT_THAT(message, AllOf(HasSubstr("unknown data set 'cifar100'"), HasSubstr("did you mean 'cifar10'?"),
                             HasSubstr("cifar10, mnist, folder, shapes")));
  EXPECT_THROW(data::find_dataset(""), UsageError);
}

TEST(DatasetRegistry, AddsADataSetWithANewName) {
  const auto read = [](const std::filesystem::path&, const data::ReadOptions&) { return data::DataSet{}; };
  data::add({.name = "mine",
             .source = data::DatasetSource::user_directory,
             .read = read,
             .image_shape = {8, 8, 1},
             .classes = 2});
  EXPECT_EQ(data::find_dataset("mine").classes, 2);
  EXPECT_EQ(data::dataset_names().back(), "mine");
  EXPECT_EQ(message_of<UsageError>([&] { data::add({.name = "mine", .read = read}); }),
            "data set 'mine': found another one with this name, expected a new one");
  EXPECT_EQ(message_of<UsageError>([&] { data::add({.name = "empty"}); }),
            "data set 'empty': found no name or no function that reads it, expected both");
  EXPECT_EQ(message_of<UsageError>(
                [&] { data::add({.name = "files", .source = data::DatasetSource::official, .read = read}); }),
            "data set 'files': expected a list of files exactly if the source is official");
}

TEST(DatasetRegistry, OfficialDataSetsAreRecognizedByTheirFirstDownload) {
  for (const data::DatasetEntry& entry : data::all_datasets()) {
    EXPECT_EQ(entry.files != nullptr, entry.source == data::DatasetSource::official) << entry.name;
    if (entry.files == nullptr) continue;
    const testing::TempDirectory directory;
    EXPECT_FALSE(entry.files->are_in(directory.path())) << entry.name;
    directory.write(entry.files->official().front().front().name, "");
    EXPECT_TRUE(entry.files->are_in(directory.path())) << entry.name;
    EXPECT_FALSE(entry.files->expected().empty()) << entry.name;
  }
}

TEST(DatasetRegistry, GeneratedDataSetsHaveTheShapeOfTheirEntry) {
  for (const data::DatasetEntry& entry : data::all_datasets()) {
    if (entry.source != data::DatasetSource::generated) continue;
    const data::DataSet data = entry.read({}, {.seed = 3});
    EXPECT_EQ(data.name, entry.name);
    EXPECT_EQ(data.image_shape(), Shape(entry.image_shape));
    EXPECT_EQ(data.classes.size(), static_cast<std::size_t>(entry.classes));
    EXPECT_EQ(entry.read({}, {.image_size = 16, .seed = 3}).image_shape(), Shape({16, 16, 3}));
  }
}

}  // namespace
}  // namespace convoy
