#include "kernels/runtime/timed_choices.h"

#include <gtest/gtest.h>

namespace convoy::testing {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

TEST(TimedChoices, KeepsWhatWasUsedLast) {
  TimedChoices choices(2);
  choices.insert("a", "1");
  choices.insert("b", "2");
  EXPECT_EQ(choices.find("a"), "1");  // now b is the one used least recently
  choices.insert("c", "3");
  EXPECT_EQ(choices.find("b"), std::nullopt);
  EXPECT_EQ(choices.entries(), (Entries{{"a", "1"}, {"c", "3"}}));
}

TEST(TimedChoices, AnEntryIsReplaced) {
  TimedChoices choices;
  choices.insert("a", "1");
  choices.insert("b", "2");
  choices.insert("a", "3");
  EXPECT_EQ(choices.size(), 2U);
  EXPECT_EQ(choices.entries(), (Entries{{"b", "2"}, {"a", "3"}}));
}

TEST(TimedChoices, TheRevisionTellsWhatIsNew) {
  TimedChoices choices;
  EXPECT_EQ(choices.revision(), 0U);
  choices.insert("a", "1");
  const auto first = choices.revision();
  choices.insert("a", "1");
  choices.find("a");
  choices.find("b");
  EXPECT_EQ(choices.revision(), first) << "nothing changed";
  choices.insert("a", "2");
  EXPECT_GT(choices.revision(), first);
}

// Keys are looked up through views into the entries: those must stay where they are.
TEST(TimedChoices, ManyEntriesComeAndGo) {
  TimedChoices choices(10);
  for (int i = 0; i < 1000; ++i) choices.insert("key " + std::to_string(i), std::to_string(i));
  EXPECT_EQ(choices.size(), 10U);
  for (int i = 990; i < 1000; ++i) EXPECT_EQ(choices.find("key " + std::to_string(i)), std::to_string(i));
}

}  // namespace
}  // namespace convoy::testing
