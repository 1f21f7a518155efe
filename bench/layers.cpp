// convoy-bench-layers: what part of a step the convolutions and batch norms would take alone.
#include <nlohmann/json.hpp>

#include "apps/command_line.h"
#include "apps/compute.h"
#include "apps/run_main.h"
#include "bench/layer_share.h"
#include "bench/step_report.h"
#include "kernels/runtime/check.h"
#include "models/models.h"

namespace convoy::bench {
namespace {

int run(int argc, char** argv) {
  ComputeOptions compute{.device = "cpu"};
  StepChoice choice;
  std::int64_t rounds = 5, warmup = 2;
  std::string json;
  CommandLine line(
      "convoy-bench-layers",
      "Times the convolutions and batch norms of a network one by one, and whole training steps, "
      "in turn on the CPU: their sum over the step says how little the rest costs.");
  line.heading("Step");
  line.add("model", &choice.model, "Network", {.value = "NAME", .choices = models::names()});
  line.add("batch-size", &choice.batch, "Images of a step", {.value = "N", .least = 1, .most = 1e6});
  line.add("image-size", &choice.image_size, "Pixels a side", {.value = "N", .least = 8, .most = 4096});
  add_compute_flags(line, compute);
  line.heading("Measurement");
  line.add("rounds", &rounds, "Rounds: a figure is their median, with the lowest and the highest",
           {.value = "N", .least = 1, .most = 1e4});
  line.add("warmup", &warmup, "Rounds before them that are not counted",
           {.value = "N", .least = 0, .most = 1e4});
  line.add("json", &json, "Write the figures to this file, too", {.value = "FILE", .default_is = "none"});
  if (!line.parse(argc, argv)) return 0;
  check(compute.device == "cpu", "--device: found {}, expected cpu", compute.device);
  check_writable(json);
  const Device device = open_device(compute, choice.precision);
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
