// Compares the plans that the installed cuDNN makes for described GPUs with the committed table.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "convoy/kernels/runtime/library_versions.h"
#include "tests/kernels/cuda/planned/plan_table.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

const std::filesystem::path kDirectory = testing::source_path("bench/results/planned");

std::string file_text(const std::string& name) {
  std::ifstream file(kDirectory / name);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Compares the lines of a text with a committed file. Reports at most five differences.
void expect_committed(const std::string& name, const std::string& text) {
  if (std::getenv("CONVOY_UPDATE_PLANS") != nullptr) {
    std::ofstream(kDirectory / name) << text;
    return;
  }
  std::istringstream committed(file_text(name)), found(text);
  std::string expected, line;
  int differences = 0;
  for (bool more = true; more && differences < 5;) {
    const bool has_expected = static_cast<bool>(std::getline(committed, expected));
    const bool has_line = static_cast<bool>(std::getline(found, line));
    more = has_expected || has_line;
    if (!has_expected) expected = "(no more lines)";
    if (!has_line) line = "(no more lines)";
    if (more && expected != line) {
      ADD_FAILURE() << "bench/results/planned/" << name << " has\n  " << expected << "\nfound\n  " << line;
      ++differences;
    }
  }
}

/// Whether the committed table describes what the installed libraries plan. With a driver, cuDNN proposes
/// engines that are compiled at run time as well.
bool is_comparable() {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) {
    std::cout << "a CUDA driver is installed: the table is not compared\n";
    return false;
  }
  const std::string committed = file_text("plans.csv");
  if (std::getenv("CONVOY_UPDATE_PLANS") != nullptr ||
      committed.starts_with("# " + cudnn_version_text() + "\n"))
    return true;
  std::cout << "found " << cudnn_version_text() << ", the table is for another version: not compared\n";
  return false;
}

TEST(PlanTable, HasAPlanForEveryConvolutionOfEveryModelAndIsUpToDate) {
  const std::vector<PlanRow> rows = plan_rows();
  ASSERT_GE(rows.size(), 500u);
  for (const PlanRow& row : rows)
    for (std::size_t gpu = 0; gpu < row.gpus.size(); ++gpu)
      EXPECT_GT(row.gpus[gpu].plans, 0) << row.problem << " on " << gpu_descriptions()[gpu].name;
  if (!is_comparable()) return;
  expect_committed("plans.csv", plans_csv(rows));
  expect_committed("summary.md", plans_summary(rows));
}

}  // namespace
}  // namespace convoy::testing
