// convoy-export: writes the network of a checkpoint as an ONNX file.
#include <nlohmann/json.hpp>

#include "convoy/apps/common/text.h"
#include "convoy/apps/data/input_spec.h"
#include "convoy/apps/flags/command_line.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/programs/programs.h"
#include "convoy/engine/io/file.h"
#include "convoy/engine/io/onnx.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

/// Returns the contents of the ONNX file, with the normalization of the training in the graph.
std::string encode(const LoadedModel& loaded) {
  const kernels::AugmentOptions& augment = loaded.input.transform.augment;
  const auto channels = static_cast<std::ptrdiff_t>(loaded.input.image[2]);
  io::OnnxOptions options{
      .name = loaded.model.name(),
      .mean = {augment.mean.begin(), augment.mean.begin() + channels},
      .inverse_std = {augment.inverse_std.begin(), augment.inverse_std.begin() + channels},
      .metadata = {}};
  std::vector<float> deviations;
  for (const float inverse : options.inverse_std) deviations.push_back(1 / inverse);
  options.metadata = {{"classes", json_text(nlohmann::json(loaded.input.classes))},
                      {"input", "pixels divided by 255, which the graph normalizes by mean and std"},
                      {"size", json_text(nlohmann::json({loaded.input.image[0], loaded.input.image[1]}))},
                      {"resize", "short side scaled to size with a triangle filter, center square"},
                      {"mean", json_text(nlohmann::json(options.mean))},
                      {"std", json_text(nlohmann::json(deviations))},
                      {"dataset", json_text(nlohmann::json(loaded.input.dataset))},
                      {"step", std::to_string(loaded.manifest.step)},
                      {"parameters_hash", loaded.manifest.parameters_hash}};
  return io::encode_onnx(loaded.model.root(), loaded.input.image, options);
}

int run_export(const std::string& name, int argc, char** argv) {
  std::string checkpoint, file;
  CommandLine line(name, "Exports the network of a checkpoint, which other programs then run.");
  line.group("Model");
  line.add("checkpoint", &checkpoint, "Checkpoint directory, or run directory (its best checkpoint)",
           {.value = "DIR", .required = true});
  line.group("Output");
  line.add("onnx", &file, "ONNX file: pixels from 0 to 1, [N, C, H, W], to logits",
           {.value = "FILE", .required = true});
  if (!line.parse(argc, argv)) return 0;
  check_output_file("--onnx", file);
  const io::Checkpoint found = find_checkpoint(checkpoint);
  const LoadedModel loaded = load_model(found, Device::cpu());
  const std::string bytes = encode(loaded);
  io::write_file_atomically(file, bytes);
  const Shape& image = loaded.input.image;
  print_table(
      {{"checkpoint", found.path.string()},
       {"model", fmt::format("{}, step {}", loaded.model.name(), loaded.manifest.step)},
       {"input", fmt::format("images [N, {}, {}, {}], pixels from 0 to 1", image[2], image[0], image[1])},
       {"output", fmt::format("logits [N, {}]", loaded.model.classes())},
       {"file", fmt::format("{}, {}, opset {}", file, format_bytes(bytes.size()), io::kOnnxOpset)}});
  return 0;
}

}  // namespace

int run_export_program(const std::string& name, int argc, char** argv) {
  return run_main(name.c_str(), [&] { return run_export(name, argc, argv); });
}

}  // namespace convoy
