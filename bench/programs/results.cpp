#include "bench/programs/results.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "convoy/apps/common/machine.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy::bench {

nlohmann::ordered_json spread_of(std::vector<double> values) {
  check(!values.empty(), "a spread: found no values, expected at least one");
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {{"median", median}, {"lowest", values.front()}, {"highest", values.back()}};
}

void warn_if_busy(const std::string& program) {
  if (const auto warning = busy_machine_warning()) fmt::print(stderr, "{}: warning: {}\n", program, *warning);
}

void write_json(const std::string& file, const nlohmann::ordered_json& figures) {
  if (!file.empty()) io::write_file_atomically(file, json_text(figures, 2) + "\n");
}

}  // namespace convoy::bench
