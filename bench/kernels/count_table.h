// The table of convoy-bench-kernels --count, in Markdown.
#pragma once

#include <string>

#include "bench/kernels/kernel_rows.h"
#include "tests/testing/op_cases/model_case.h"

namespace convoy::bench {

/// Return the head of the table, and the lines of a kernel and of one direction of an op. A line has what one
/// call accesses on an emulated GPU, whose libraries compute nothing, and the time that a model of an H100
/// predicts for it. It is "" for a call that launches nothing. Throw UsageError if this program cannot count
/// (counted_launches()).
std::string count_head();
std::string count_line(const KernelRow& row, const DeviceContext& device);
std::string count_line(const testing::ModelCase& op, bool is_forward, const DeviceContext& device);

}  // namespace convoy::bench
