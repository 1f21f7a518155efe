// The time that an operation takes besides the arithmetic of its kernel.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/common/results.h"

namespace convoy::bench {

/// Times of one operation on tensors of at most 64 elements, in nanoseconds per call. Nearly all of it is spent on
/// checks, on the allocation of results and on the recording of the graph.
struct Overhead {
  std::string name;
  Spread inference = {};  // forward, inside NoGrad
  Spread recorded = {};   // forward, recorded for a backward that never runs
  Spread training = {};   // forward and backward, from a gradient of the result
};

/// Times every case on the CPU with one thread: `rounds` rounds of at least `seconds` each per figure.
/// bench/python/pytorch_overhead.py has the same cases.
std::vector<Overhead> measure_overheads(int rounds, double seconds);

/// Returns the figures by name.
nlohmann::ordered_json to_json(const std::vector<Overhead>& overheads);

}  // namespace convoy::bench
