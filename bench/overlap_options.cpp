#include "bench/overlap_options.h"

#include <algorithm>
#include <charconv>

#include "kernels/runtime/check.h"
#include "models/models.h"

namespace convoy::bench {
namespace {

// What a step is made of: a record has it all.
constexpr const char* kOfTheStep[] = {"model",  "precision", "batch-size", "image-size", "steps",
                                      "device", "threads",   "record",     "real"};

double bandwidth_of(const std::string& word, const std::string& list) {
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  check(error == std::errc{} && end == word.data() + word.size() && number >= 1e-3 && number <= 1e6,
        "--bandwidth: found '{}', expected numbers from 0.001 to 1e6 with commas between them", list);
  return number;
}

}  // namespace

CommandLine overlap_command_line(OverlapOptions& options) {
  CommandLine line("convoy-bench-overlap",
                   "Says how much of the gradients' communication backward hides: it records when a training "
                   "step has its gradients ready, and replays their transfers on an emulated link.");
  line.heading("Step");
  line.add("model", &options.model, "Network", {.value = "NAME", .choices = models::names()});
  line.add("batch-size", &options.batch_size, "Images a step, of one rank",
           {.value = "N", .least = 1, .most = 1e6});
  line.add("image-size", &options.image_size, "Pixels a side", {.value = "N", .least = 1, .most = 4096});
  line.add("precision", &options.precision, "Of the network", {.choices = precision_names()});
  line.add("steps", &options.steps, "Steps that times are the medians of, after two to warm up",
           {.value = "N", .least = 1, .most = 1e4});
  add_compute_flags(line, options.compute);
  line.add("record", &options.record, "Write the step's times as JSON", {.value = "FILE"});
  line.add("replay", &options.replay, "Take the step's times from a file of --record, and run none",
           {.value = "FILE"});
  line.add("scale-to", &options.scale_to,
           "Stretch the step to so many milliseconds, as of a faster machine: a projection, as its parts "
           "may be in other proportions there",
           {.value = "MS", .default_is = "as it was recorded", .least = 1e-6, .most = 1e9});
  line.heading("Link");
  line.add("bandwidth", &options.bandwidth, "Bus bandwidths in GB/s, as nccl-tests measures them",
           {.value = "LIST"});
  line.add("latency-us", &options.latency_us, "Of each transfer, in microseconds",
           {.value = "US", .least = 0, .most = 1e6});
  line.add("ranks", &options.ranks, "How many it joins", {.value = "N", .least = 2, .most = 1e6});
  line.add("real", &options.real,
           "Also run so many real steps a row on the CPU, whose sums take as long as the link would; 0: none",
           {.value = "N", .least = 0, .most = 1e4});
  line.heading("Output");
  line.add("json", &options.json, "Write all figures and transfers", {.value = "FILE"});
  line.add("timeline", &options.timeline, "Write a picture of all transfers as SVG", {.value = "FILE"});
  return line;
}

void check_options(const CommandLine& line, const OverlapOptions& options) {
  if (!options.replay.empty())
    for (const char* name : kOfTheStep)
      check(!line.given(name), "--{}: found --replay, which runs no step, expected one of the two", name);
  check(options.real == 0 || !options.scale_to,
        "--real: found --scale-to, which real steps do not follow, expected one of the two");
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
