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

/// Compares the rows with the lines of the committed table: those that are planned whole, of the others the problem. Reports
/// at most five differences.
void expect_committed(const std::vector<PlanRow>& rows) {
  std::istringstream committed(file_text("plans.csv"));
  std::string line;
  std::getline(committed, line);  // the version
  std::getline(committed, line);  // the names of the columns
  int differences = 0;
  for (const PlanRow& row : rows) {
    const std::string expected = csv_line(row);
    if (!std::getline(committed, line)) line = "(no more lines)";
    if (line == expected || (row.gpus.empty() && line.starts_with(expected + ","))) continue;
    ADD_FAILURE() << "bench/results/planned/plans.csv has\n  " << line << "\nfound\n  " << expected;
    if (++differences == 5) return;
  }
  EXPECT_FALSE(std::getline(committed, line)) << "bench/results/planned/plans.csv has also\n  " << line;
}

/// Whether the committed table describes what the installed libraries plan. With a driver, cuDNN proposes
/// engines that are compiled at run time as well.
bool is_comparable() {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) {
    std::cout << "a CUDA driver is installed: the table is not compared\n";
    return false;
  }
  const std::string committed = file_text("plans.csv");
  if (committed.starts_with("# " + cudnn_version_text() + "\n")) return true;
  std::cout << "found " << cudnn_version_text() << ", the table is for another version: not compared\n";
  return false;
}

/// Plans all rows and writes the files with CONVOY_UPDATE_PLANS, otherwise one of kStep: all of them take four minutes.
TEST(PlanTable, HasAPlanForEveryConvolutionOfEveryModelAndIsUpToDate) {
  constexpr std::size_t kStep = 32;
  const bool updates = std::getenv("CONVOY_UPDATE_PLANS") != nullptr;
  const std::vector<PlanRow> rows = plan_rows(updates ? 1 : kStep);
  ASSERT_GE(rows.size(), 500u);
  for (const PlanRow& row : rows)
    for (std::size_t gpu = 0; gpu < row.gpus.size(); ++gpu)
      EXPECT_GT(row.gpus[gpu].plans, 0) << row.problem << " on " << gpu_descriptions()[gpu].name;
  if (updates) {
    std::ofstream(kDirectory / "plans.csv") << plans_csv(rows);
    std::ofstream(kDirectory / "summary.md") << plans_summary(rows);
  } else if (is_comparable()) {
    expect_committed(rows);
  }
}

}  // namespace
}  // namespace convoy::testing
