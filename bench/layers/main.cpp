// convoy-bench-layers: measures convolutions and batch norms in isolation, relative to a training step.
#include <nlohmann/json.hpp>

#include "bench/common/results.h"
#include "bench/layers/layer_share.h"
#include "convoy/apps/common/command_line.h"
#include "convoy/apps/common/compute.h"
#include "convoy/apps/common/precision.h"
#include "convoy/apps/common/run_main.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy::bench {
namespace {

int run(int argc, char** argv) {
  ComputeOptions compute{.device = "cpu"};
  StepChoice choice;
  std::int64_t rounds = 5, warmup = 2;
  std::string json;
  CommandLine line("convoy-bench-layers",
                   "Compares the time of a network's convolutions and batch norms, one by one, with whole "
                   "training steps on the CPU.");
  line.group("Step");
  line.add("model", &choice.model, "Network", {.value = "NAME", .choices = models::names()});
  line.add("batch-size", &choice.batch, "Batch size (images)", {.value = "N", .minimum = 1, .maximum = 1e6});
  line.add("image-size", &choice.image_size, "Image size (pixels per side)",
           {.value = "PIXELS", .minimum = 8, .maximum = 4096});
  add_compute_flags(line, compute);
  line.group("Measurement");
  line.add("rounds", &rounds, "Measured rounds; results are the median, minimum and maximum",
           {.value = "N", .minimum = 1, .maximum = 1e4});
  line.add("warmup", &warmup, "Warmup rounds", {.value = "N", .minimum = 0, .maximum = 1e4});
  line.add("json", &json, "Result file (JSON)", {.value = "FILE"});
  if (!line.parse(argc, argv)) return 0;
  check(compute.device == "cpu", "--device: found {}, expected cpu", compute.device);
  check_writable(json);
  const DeviceContext device = open_device(compute, parse_precision("fp32"));
  warn_if_busy("convoy-bench-layers");
  const LayerShare share = measure_layers(choice, static_cast<int>(rounds), static_cast<int>(warmup), device);
  print(share);
  nlohmann::ordered_json report = {{"model", choice.model},
                                   {"batch_size", choice.batch},
                                   {"image_size", choice.image_size},
                                   {"threads", compute.threads}};
  report.update(to_json(share));
  write_json(json, report);
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-layers", [&] { return convoy::bench::run(argc, argv); });
}
