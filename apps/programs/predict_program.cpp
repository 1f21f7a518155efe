// convoy-predict: prints the most probable classes of image files.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>

#include "convoy/apps/common/compute.h"
#include "convoy/apps/common/input_spec.h"
#include "convoy/apps/common/run_main.h"
#include "convoy/apps/programs/predictions.h"
#include "convoy/apps/programs/programs.h"
#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/class_directories.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/augment.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/printable.h"
#include "convoy/kernels/softmax.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

struct PredictOptions {
  std::string checkpoint;
  std::vector<std::string> files;
  std::int64_t top = 5;
  std::string json, csv, logits;
  std::int64_t batch_size = 128;
  ComputeOptions compute;
};

CommandLine predict_command_line(PredictOptions& o, const std::string& name) {
  CommandLine line(name, "Classifies images: the most probable classes and their probabilities.");
  line.add_positionals("IMAGE", o.files, "Image files, directories of images, or - for one image on stdin");
  line.group("Model");
  line.add("checkpoint", &o.checkpoint, "Checkpoint directory, or run directory (its best checkpoint)",
           {.value = "DIR", .required = true});
  line.group("Output");
  line.add("top", &o.top, "Number of classes to print per image", {.value = "N", .minimum = 1});
  line.add("json", &o.json, "File for the classes of each image (JSON); - for stdout, in place of the text",
           {.value = "FILE"});
  line.add("csv", &o.csv, "File for the same table (CSV); - for stdout", {.value = "FILE"});
  line.add("logits", &o.logits, "File for the logits (NumPy, images x classes)", {.value = "FILE.npy"});
  line.group("Data");
  line.add("batch-size", &o.batch_size, "Batch size (images)",
           {.value = "N", .minimum = 1, .maximum = 1 << 20});
  add_compute_flags(line, o.compute);
  return line;
}

/// The images of the arguments.
struct Inputs {
  std::vector<std::string> files;
  data::LeftOut left_out;  // of the directories
};

/// Replaces each directory by the images below it, at any depth, sorted by path.
Inputs expand(const std::vector<std::string>& arguments) {
  Inputs inputs;
  std::vector<std::string>& files = inputs.files;
  for (const std::string& argument : arguments) {
    if (!data::is_existing_directory(argument)) {
      files.push_back(argument);  // read_input() reports what is wrong with it
      continue;
    }
    const std::size_t before = files.size();
    for (const fs::path& image : data::find_images(argument, inputs.left_out))
      files.push_back(image.string());
    if (files.size() == before)
      fail<DataError>("{}: found no image in this directory, expected {} files{}{}", argument,
                      data::image_formats_text(), inputs.left_out.empty() ? "" : "; ",
                      inputs.left_out.text());
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
  }
  return inputs;
}

/// Reads an image as u8 [H, W, C], the input shape `expected` of the model. Resizes it if the model takes
/// squares, and converts it to grey for a model with one channel. Throws DataError if it does not fit.
Tensor read_input(const std::string& file, const Shape& expected) {
  const int size = expected[0] == expected[1] ? static_cast<int>(expected[0]) : 0;
  Tensor image;
  if (file == "-") {
    const std::string bytes(std::istreambuf_iterator<char>(std::cin), {});
    image = data::decode_image(bytes, "standard input", size);
  } else {
    image = data::read_image(file, size);
  }
  if (image.size(0) != expected[0] || image.size(1) != expected[1])
    fail<DataError>("{}: found {}x{} pixels, expected {}x{}", file, image.size(0), image.size(1), expected[0],
                    expected[1]);
  if (expected[2] == 3) return image;
  if (expected[2] != 1)
    fail<DataError>("{}: the model has {} input channels, expected 1 or 3", file, expected[2]);
  const Tensor grey = Tensor::empty({expected[0], expected[1], 1}, DType::u8, image.context());
  const auto* from = image.view().as<std::uint8_t>();
  auto* to = grey.view().as<std::uint8_t>();
  for (std::int64_t i = 0; i < grey.numel(); ++i) {
    // Luma of ITU-R BT.601 in units of 1/256. Grey pixels keep their value, since the weights add up to 256.
    const int luma = 77 * from[3 * i] + 150 * from[3 * i + 1] + 29 * from[3 * i + 2];
    to[i] = static_cast<std::uint8_t>((luma + 128) >> 8);
  }
  return grey;
}

/// Returns the logits [n, classes] of n files.
Tensor compute_logits(const LoadedModel& loaded, const DeviceContext& device,
                      std::span<const std::string> files) {
  const NoGrad no_grad;
  const Shape& image = loaded.input.image;
  const auto count = static_cast<std::int64_t>(files.size());
  const Tensor images = Tensor::empty({count, image[0], image[1], image[2]}, DType::u8, Device::cpu());
  for (std::int64_t i = 0; i < count; ++i)
    images.rows(i, i + 1).copy_from(
        read_input(files[static_cast<std::size_t>(i)], image).reshape({1, image[0], image[1], image[2]}));
  std::vector<std::int32_t> rows(files.size());
  std::iota(rows.begin(), rows.end(), 0);
  const Tensor pixels = images.to(device);
  const Tensor index = Tensor::from(rows, {count}, device);
  const Tensor input = Tensor::empty({count, image[0], image[1], image[2]}, loaded.dtype, device);
  on(device.stream(), [&](auto& s) {
    kernels::augment(s, pixels.view(), index.view(), index.view(), loaded.input.transform.augment, Random{},
                     input.view());
  });
  return loaded.model(input).value();
}

/// Returns the `top` most probable classes of a file.
Prediction top_classes(const std::string& file, std::span<const double> probabilities, std::size_t top) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return probabilities[a] > probabilities[b]; });
  Prediction prediction{.path = file, .top = {}};
  for (std::size_t i = 0; i < std::min(top, order.size()); ++i)
    prediction.top.emplace_back(order[i], probabilities[order[i]]);
  return prediction;
}

void print(const Prediction& prediction, const std::vector<std::string>& classes) {
  fmt::print("{}\n", prediction.path == "-" ? "standard input" : without_control_characters(prediction.path));
  for (const auto& [label, probability] : prediction.top)
    fmt::print("  {:6.2f}%  {}\n", probability * 100, without_control_characters(classes[label]));
}

/// Writes a text to a file, or for "-" to standard output.
void write_text(const std::string& file, const std::string& text) {
  if (file != "-") return io::write_file_atomically(file, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail<OutputError>("standard output: cannot be written: {}", std::strerror(errno));
}

/// Returns the softmax of logits [n, classes], in row-major order.
std::vector<double> probabilities_of(const Tensor& logits) {
  const Tensor probabilities = Tensor::empty_like(logits);
  on(logits.stream(), [&](auto& s) { kernels::softmax(s, logits.view(), probabilities.view()); });
  return probabilities.to(DType::f64).to_vector<double>();
}

int run_predict(const std::string& name, int argc, char** argv) {
  PredictOptions options;
  CommandLine line = predict_command_line(options, name);
  if (!line.parse(argc, argv)) return 0;
  check(!options.files.empty(), "no images: expected files, directories, or - for standard input");
  check(std::count(options.files.begin(), options.files.end(), "-") <= 1,
        "'-': found several times, expected at most once, since standard input can be read only once");
  check(options.json != "-" || options.csv != "-",
        "--json and --csv: found - for both, expected at most one of them on standard output");
  for (const auto& [flag, file] : {std::pair("--json", &options.json), std::pair("--csv", &options.csv),
                                   std::pair("--logits", &options.logits)})
    check_output_file(flag, *file);
  const bool prints_text = options.json != "-" && options.csv != "-";
  const DeviceContext device = open_device(options.compute, parse_precision("fp32"));
  device.set_autotune(false);  // takes longer than computing a few images
  const io::Checkpoint checkpoint = find_checkpoint(options.checkpoint);
  const LoadedModel loaded = load_model(checkpoint, device);
  const auto [files, left_out] = expand(options.files);
  if (!left_out.empty())
    fmt::print(stderr, "{}: warning: {}\n", name, without_control_characters(left_out.text()));

  const auto classes = loaded.input.classes.size();
  const auto count = static_cast<std::int64_t>(files.size());
  std::vector<Prediction> predictions;
  const Tensor all = Tensor::empty({count, static_cast<std::int64_t>(classes)}, loaded.dtype, Device::cpu());
  for (std::int64_t begin = 0; begin < count; begin += options.batch_size) {
    const std::int64_t end = std::min(begin + options.batch_size, count);
    const auto chunk =
        std::span(files).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const Tensor logits = compute_logits(loaded, device, chunk);
    all.rows(begin, end).copy_from(logits);
    const std::vector<double> probabilities = probabilities_of(logits);
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      predictions.push_back(top_classes(chunk[i], std::span(probabilities).subspan(i * classes, classes),
                                        static_cast<std::size_t>(options.top)));
      if (prints_text) print(predictions.back(), loaded.input.classes);
    }
  }
  for (const std::string& warning : device.take_warnings())
    fmt::print(stderr, "{}: warning: {}\n", name, without_control_characters(warning));
  const PredictionSource source{
      .checkpoint = checkpoint.path.string(), .model = loaded.model.name(), .classes = loaded.input.classes};
  if (!options.json.empty()) write_text(options.json, to_json(predictions, source));
  if (!options.csv.empty()) write_text(options.csv, to_csv(predictions, source));
  if (!options.logits.empty()) io::write_file_atomically(options.logits, encode_npy(all));
  return 0;
}

}  // namespace

int run_predict_program(const std::string& name, int argc, char** argv) {
  return run_main(name.c_str(), [&] { return run_predict(name, argc, argv); });
}

}  // namespace convoy
