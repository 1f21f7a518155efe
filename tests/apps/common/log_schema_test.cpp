// docs/log.schema.json: JSON Schema as Python's validator reads it, and what it refuses.
#include "tests/apps/log_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/apps/find_python.h"
#include "tests/apps/programs.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

/// A log with every kind of event but `error`.
class LogSchema : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    workshop = std::make_unique<Workshop>();
    // A batch of more images than there are, which is a warning.
    ASSERT_EQ(workshop->train("run", {"--batch-size", "400", "--max-steps", "2", "--tta"}).exit_code, 0);
  }
  static void TearDownTestSuite() { workshop.reset(); }
  static std::unique_ptr<Workshop> workshop;
};
std::unique_ptr<Workshop> LogSchema::workshop;

TEST_F(LogSchema, RefusesChangedFields) {
  for (const char* kind : {"start", "step", "epoch", "eval", "save", "warning", "result"}) {
    const std::vector<Json> events = workshop->events("run", kind);
    ASSERT_FALSE(events.empty()) << kind;
    ASSERT_EQ(log_violation(events.back()), "");
    for (const auto& [name, value] : events.back().items()) {
      Json changed = events.back();
      changed[name] = Json::array({Json::object()});
      EXPECT_NE(log_violation(changed), "") << kind << " with another " << name;
    }
    Json more = events.back();
    more["another"] = 1;
    EXPECT_THAT(log_violation(more), HasSubstr("/another: is not in the schema"));
    Json less = events.back();
    less.erase("time");
    EXPECT_THAT(log_violation(less), HasSubstr("has no \"time\""));
  }
  EXPECT_NE(log_violation(Json{{"event", "unknown"}}), "");
  EXPECT_NE(log_violation(Json::array()), "");
}

TEST_F(LogSchema, AgreesWithPythonsValidator) {
  const std::string found = find_python("jsonschema");
  if (found.empty()) GTEST_SKIP() << no_python("jsonschema");
  const Arguments python = {found, "-c", R"(
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
lines = [json.loads(line) for line in open(sys.argv[2])]
for line in lines:
    validator.validate(line)
    assert not validator.is_valid({**line, "another": 1})
    assert not validator.is_valid({**line, "time": "yesterday"})
print(sorted({line["event"] for line in lines}))
)"};
  const ProcessResult result = run_program(
      with(python, {testing::source_path("docs/log.schema.json"), workshop->path("run") / "log.jsonl"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "['epoch', 'eval', 'result', 'save', 'start', 'step', 'warning']\n");
}

}  // namespace
}  // namespace convoy::testing
