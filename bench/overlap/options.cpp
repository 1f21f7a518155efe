#include "bench/overlap/options.h"

#include <algorithm>
#include <charconv>

#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy::bench {
namespace {

// Flags that define the step; a record fixes their values.
constexpr const char* kStepFlags[] = {"model",  "precision", "batch-size", "image-size", "steps",
                                      "device", "threads",   "record",     "real"};

double bandwidth_of(const std::string& word, const std::string& list) {
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  check(error == std::errc{} && end == word.data() + word.size() && number >= 1e-3 && number <= 1e6,
        "--bandwidth: found '{}', expected comma-separated numbers from 0.001 to 1e6", list);
  return number;
}

}  // namespace

CommandLine overlap_command_line(OverlapOptions& options) {
  CommandLine line(
      "convoy-bench-overlap",
      "Measures how much gradient communication overlaps with backward: records when each gradient "
      "of a training step is ready, and replays the transfers on an emulated link.");
  line.group("Step");
  line.add("model", &options.model, "Network", {.value = "NAME", .choices = models::names()});
  line.add("batch-size", &options.batch_size, "Batch size of one rank (images)",
           {.value = "N", .minimum = 1, .maximum = 1e6});
  line.add("image-size", &options.image_size, "Image size (pixels per side)",
           {.value = "PIXELS", .minimum = 1, .maximum = 4096});
  line.group("Precision and device");
  line.add("precision", &options.precision, "Compute precision",
           {.value = "NAME", .choices = precision_names()});
  line.group("Step");
  line.add("steps", &options.steps, "Measured steps (after two warmup steps); times are their medians",
           {.value = "N", .minimum = 1, .maximum = 1e4});
  add_compute_flags(line, options.compute);
  line.group("Step");
  line.add("record", &options.record, "Output file for the times of the step (JSON)", {.value = "FILE"});
  line.add("replay", &options.replay, "Input file with the times of a step (from --record); runs no step",
           {.value = "FILE"});
  line.add("scale-to", &options.scale_to,
           "Step time to scale all times to (milliseconds); a projection that assumes the same proportions",
           {.value = "MS", .default_text = "no scaling", .minimum = 1e-6, .maximum = 1e9});
  line.group("Link");
  line.add("bandwidth", &options.bandwidth, "Bus bandwidths as defined by nccl-tests (GB/s), comma-separated",
           {.value = "LIST"});
  line.add("latency-us", &options.latency_us, "Latency of each transfer (microseconds)",
           {.value = "US", .minimum = 0, .maximum = 1e6});
  line.add("ranks", &options.ranks, "World size", {.value = "N", .minimum = 2, .maximum = 1e6});
  line.add("real", &options.real,
           "Real steps per row on the CPU, with collectives as slow as the emulated link; 0: none",
           {.value = "N", .minimum = 0, .maximum = 1e4});
  line.group("Output");
  line.add("json", &options.json, "Result file with all figures and transfers (JSON)", {.value = "FILE"});
  line.add("timeline", &options.timeline, "Timeline of all transfers (SVG)", {.value = "FILE"});
  return line;
}

void check_options(const CommandLine& line, const OverlapOptions& options) {
  if (!options.replay.empty())
    for (const char* name : kStepFlags)
      check(!line.given(name), "--{}: found --replay too, which runs no step; expected only one of them",
            name);
  check(options.real == 0 || !options.scale_to,
        "--real: found --scale-to too, which does not apply to real steps; expected only one of them");
}

StepChoice choice_of(const OverlapOptions& options) {
  return {.model = options.model,
          .batch = options.batch_size,
          .image_size = options.image_size,
          .precision = parse_precision(options.precision)};
}

std::vector<Link> links_of(const OverlapOptions& options) {
  std::vector<Link> links;
  for (std::size_t begin = 0; begin <= options.bandwidth.size();) {
    const std::size_t end = std::min(options.bandwidth.find(',', begin), options.bandwidth.size());
    links.push_back({.gb_s = bandwidth_of(options.bandwidth.substr(begin, end - begin), options.bandwidth),
                     .latency_us = options.latency_us,
                     .ranks = static_cast<int>(options.ranks)});
    begin = end + 1;
  }
  return links;
}

}  // namespace convoy::bench
