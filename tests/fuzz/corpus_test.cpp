// Runs the fuzz targets on the inputs that searches have found (corpus/), on valid inputs, and on damaged ones.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

class Corpus : public ::testing::TestWithParam<FuzzTarget> {
 protected:
  std::vector<std::string> inputs() const {
    std::vector<std::string> found = GetParam().valid_inputs();
    const std::filesystem::path place = testing::source_path("tests/fuzz/corpus") / GetParam().name;
    for (const auto& entry : std::filesystem::directory_iterator(place))
      found.push_back(testing::contents_of(entry.path()));
    return found;
  }
};

TEST_P(Corpus, IsReadOrRefused) {
  const std::vector<std::string> all = inputs();
  EXPECT_GT(all.size(), GetParam().valid_inputs().size()) << "the corpus is empty";
  for (const std::string& input : all)
    EXPECT_NO_THROW(GetParam().parse(input)) << ::testing::PrintToString(input);
}

TEST_P(Corpus, IsReadOrRefusedIfDamaged) {
  std::mt19937 random(1);
  for (const std::string& input : inputs())
    for (int i = 0; i < 40; ++i) {
      std::string damaged = input;
      for (unsigned edits = 1 + random() % 4; edits > 0 && !damaged.empty(); --edits) {
        const std::size_t at = random() % damaged.size();
        switch (random() % 4) {
          case 0: damaged.erase(at, 1 + random() % 8); break;
          case 1: damaged.insert(at, damaged.substr(at, 1 + random() % 8)); break;
          case 2: damaged.resize(at); break;
          default: damaged[at] = static_cast<char>(random()); break;
        }
      }
      EXPECT_NO_THROW(GetParam().parse(damaged)) << ::testing::PrintToString(damaged);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Corpus, ::testing::ValuesIn(fuzz_targets().begin(), fuzz_targets().end()),
                         [](const auto& target) { return target.param.name; });

}  // namespace
}  // namespace convoy::testing
