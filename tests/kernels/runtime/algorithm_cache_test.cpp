#include "convoy/kernels/runtime/algorithm_cache.h"

#include <gtest/gtest.h>

namespace convoy::testing {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

TEST(AlgorithmCache, EvictsTheLeastRecentlyUsedEntry) {
  AlgorithmCache cache(2);
  cache.insert("a", "1");
  cache.insert("b", "2");
  EXPECT_EQ(cache.find("a"), "1");  // now b is the least recently used entry
  cache.insert("c", "3");
  EXPECT_EQ(cache.find("b"), std::nullopt);
  EXPECT_EQ(cache.entries(), (Entries{{"a", "1"}, {"c", "3"}}));
}

TEST(AlgorithmCache, ReplacesAnEntry) {
  AlgorithmCache cache;
  cache.insert("a", "1");
  cache.insert("b", "2");
  cache.insert("a", "3");
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_EQ(cache.entries(), (Entries{{"b", "2"}, {"a", "3"}}));
}

TEST(AlgorithmCache, RevisionIncreasesWithEveryChange) {
  AlgorithmCache cache;
  EXPECT_EQ(cache.revision(), 0U);
  cache.insert("a", "1");
  const auto first = cache.revision();
  cache.insert("a", "1");
  cache.find("a");
  cache.find("b");
  EXPECT_EQ(cache.revision(), first) << "nothing changed";
  cache.insert("a", "2");
  EXPECT_GT(cache.revision(), first);
}

TEST(AlgorithmCache, KeepsCodeAsLongAsItsValue) {
  AlgorithmCache cache;
  cache.insert("a", "1", "code");
  EXPECT_EQ(cache.code("a"), "code");
  EXPECT_EQ(cache.code("b"), "");
  const auto revision = cache.revision();
  cache.insert("a", "1");
  EXPECT_EQ(cache.code("a"), "code");
  EXPECT_EQ(cache.revision(), revision);
  cache.insert("a", "1", "new code");
  EXPECT_EQ(cache.code("a"), "new code");
  EXPECT_GT(cache.revision(), revision);
  cache.insert("a", "2");
  EXPECT_EQ(cache.code("a"), "");
}

// The index refers to the keys of the entries, so entries must not move in memory.
TEST(AlgorithmCache, FindsEntriesAfterManyEvictions) {
  AlgorithmCache cache(10);
  for (int i = 0; i < 1000; ++i) cache.insert("key " + std::to_string(i), std::to_string(i));
  EXPECT_EQ(cache.size(), 10U);
  for (int i = 990; i < 1000; ++i) EXPECT_EQ(cache.find("key " + std::to_string(i)), std::to_string(i));
}

}  // namespace
}  // namespace convoy::testing
