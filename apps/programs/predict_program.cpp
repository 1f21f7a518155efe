// convoy-predict: prints the most probable classes of image files.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <numeric>
#include <sstream>

#include "convoy/apps/data/input_spec.h"
#include "convoy/apps/flags/compute.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/programs/predictions.h"
#include "convoy/apps/programs/programs.h"
#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/class_directories.h"
#include "convoy/datasets/formats/png_grid.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/augment.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/printable.h"
#include "convoy/kernels/softmax.h"
#include "convoy/models/grad_cam.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

struct PredictOptions {
  std::string checkpoint;
  std::vector<std::string> files;
  std::int64_t top = 5;
  std::string json, csv, logits, explain;
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
  line.add("explain", &o.explain,
           "File for a picture of each image and of where the network sees its class (Grad-CAM)",
           {.value = "FILE.png"});
  line.group("Data");
  line.add("batch-size", &o.batch_size, "Batch size (images)",
           {.value = "N", .minimum = 1, .maximum = 1 << 20});
  add_compute_flags(line, o.compute);
  return line;
}

/// Replaces each directory by the images below it, at any depth, sorted by path. Counts in `left_out` what else they hold.
std::vector<std::string> expand(const std::vector<std::string>& arguments, data::LeftOut& left_out) {
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    if (!data::is_existing_directory(argument)) {
      files.push_back(argument);  // read_input() reports what is wrong with it
      continue;
    }
    const std::size_t before = files.size();
    for (const fs::path& image : data::find_images(argument, left_out)) files.push_back(image.string());
    if (files.size() == before)
      fail<DataError>("{}: found no image in this directory, expected {} files{}{}", argument,
                      data::image_formats_text(), left_out.empty() ? "" : "; ", left_out.text());
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
  }
  return files;
}

/// Reads an image as u8 [H, W, C], the input shape `expected` of the model. Resizes it if the model takes
/// squares, and converts it to grey for a model with one channel. Throws DataError if it does not fit.
Tensor read_input(const std::string& file, const Shape& expected) {
  const int size = expected[0] == expected[1] ? static_cast<int>(expected[0]) : 0;
  Tensor image;
  if (file == "-") {
    std::ostringstream bytes;
    if (!(bytes << std::cin.rdbuf()))
      fail<DataError>("standard input: empty or cannot be read, expected an image");
    image = data::decode_image(bytes.str(), "standard input", size);
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

/// Returns n files as images u8 [n, H, W, C] on the CPU.
Tensor read_inputs(const LoadedModel& loaded, std::span<const std::string> files) {
  const Shape& image = loaded.input.image;
  const auto count = static_cast<std::int64_t>(files.size());
  const Tensor images = Tensor::empty({count, image[0], image[1], image[2]}, DType::u8, Device::cpu());
  for (std::int64_t i = 0; i < count; ++i)
    images.rows(i, i + 1).copy_from(
        read_input(files[static_cast<std::size_t>(i)], image).reshape({1, image[0], image[1], image[2]}));
  return images;
}

/// Returns images u8 [n, H, W, C] on the device, normalized as the training did.
Tensor normalized(const LoadedModel& loaded, const DeviceContext& device, const Tensor& images) {
  const std::int64_t count = images.size(0);
  std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  const Tensor pixels = images.to(device);
  const Tensor index = Tensor::from(rows, {count}, device);
  const Tensor input = Tensor::empty(images.shape(), loaded.dtype, device);
  on(device.stream(), [&](auto& s) {
    kernels::augment(s, pixels.view(), index.view(), index.view(), loaded.input.transform.augment, Random{},
                     input.view());
  });
  return input;
}

/// The picture of --explain: a row for each image, with the image and the same image under its map.
class Explanations {
 public:
  /// Adds images u8 [n, H, W, C], which are `input` for the model. `predictions` are theirs.
  void add(const LoadedModel& loaded, const Tensor& images, const Tensor& input,
           std::span<const Prediction> predictions) {
    const models::GradCam cam = models::grad_cam(loaded.model, input);
    layer_ = cam.layer;
    const std::int64_t height = images.size(1), width = images.size(2), channels = images.size(3);
    const std::int64_t zoom = std::max<std::int64_t>(1, kMinPixels / std::max(height, width));
    cell_ = {height * zoom, width * zoom, 3};
    const std::vector<float> maps = models::enlarge_maps(cam.maps, cell_[0], cell_[1]).to_vector<float>();
    const auto* const pixels = images.view().as<std::uint8_t>();
    const std::int64_t size = cell_[0] * cell_[1];
    for (std::int64_t n = 0; n < images.size(0); ++n) {
      const auto* const map = maps.data() + n * size;
      const float maximum = *std::max_element(map, map + size);
      for (const bool is_map : {false, true})
        for (std::int64_t i = 0; i < size; ++i)
          for (std::int64_t c = 0; c < 3; ++c) {
            const std::int64_t pixel = (n * height + i / cell_[1] / zoom) * width + i % cell_[1] / zoom;
            const float value = pixels[pixel * channels + std::min(c, channels - 1)] / 255.0F;
            // From blue at 0 by green to red at the maximum.
            const float at = maximum > 0 ? 4 * map[i] / maximum : 0;
            const float color = std::clamp(1.5F - std::abs(at - static_cast<float>(3 - c)), 0.0F, 1.0F);
            values_.push_back(is_map ? (value + color) / 2 : value);
          }
      const Prediction& prediction = predictions[static_cast<std::size_t>(n)];
      const auto& [label, probability] = prediction.top.front();
      captions_.push_back(fs::path(prediction.path).filename().string());
      captions_.push_back(fmt::format("{:.2f}% {}", probability * 100, loaded.input.classes[label]));
    }
  }
  /// Writes the picture, and returns the path of the layer whose maps it has.
  const std::string& write(const std::string& file) const {
    data::write_png_grid(
        file, Tensor::from(values_, {std::ssize(captions_), cell_[0], cell_[1], cell_[2]}, Device::cpu()),
        /*columns=*/2, captions_);
    return layer_;
  }

 private:
  static constexpr std::int64_t kMinPixels = 224;  // smaller images are enlarged
  std::string layer_;
  Shape cell_;  // [height, width, 3] of each image in the picture
  std::vector<float> values_;
  std::vector<std::string> captions_;
};

/// Returns the `top` most probable classes of a file.
Prediction top_classes(const std::string& file, std::span<const double> probabilities, std::size_t top) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t label) { return probabilities[label]; });
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

int run_predict(const std::string& name, int argc, char** argv) {
  PredictOptions options;
  CommandLine line = predict_command_line(options, name);
  if (!line.parse(argc, argv)) return 0;
  check(!options.files.empty(), "no images: expected files, directories, or - for standard input");
  check(std::ranges::count(options.files, std::string("-")) <= 1,
        "'-': found several times, expected at most once, since standard input can be read only once");
  check(options.json != "-" || options.csv != "-",
        "--json and --csv: found - for both, expected at most one of them on standard output");
  for (const auto& [flag, file] :
       {std::pair("--json", &options.json), std::pair("--csv", &options.csv),
        std::pair("--logits", &options.logits), std::pair("--explain", &options.explain)})
    check_output_file(flag, *file);
  const bool prints_text = options.json != "-" && options.csv != "-";
  const DeviceContext device = open_device(options.compute, parse_precision("fp32"));
  device.set_autotune(false);  // takes longer than computing a few images
  const io::Checkpoint checkpoint = find_checkpoint(options.checkpoint);
  const LoadedModel loaded = load_model(checkpoint, device);
  data::LeftOut left_out;
  const std::vector<std::string> files = expand(options.files, left_out);
  if (!left_out.empty())
    fmt::print(stderr, "{}: warning: {}\n", name, without_control_characters(left_out.text()));

  const auto classes = loaded.input.classes.size();
  const auto count = static_cast<std::int64_t>(files.size());
  constexpr std::int64_t kMaxExplained = 100;  // a picture of at most 45,000 rows of pixels
  check(options.explain.empty() || count <= kMaxExplained,
        "--explain: found {} images, expected at most {}, since one picture has them all", count,
        kMaxExplained);
  Explanations explanations;
  std::vector<Prediction> predictions;
  const Tensor all = Tensor::empty({count, static_cast<std::int64_t>(classes)}, loaded.dtype, Device::cpu());
  for (std::int64_t begin = 0; begin < count; begin += options.batch_size) {
    const std::int64_t end = std::min(begin + options.batch_size, count);
    const auto chunk =
        std::span(files).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const Tensor images = read_inputs(loaded, chunk), input = normalized(loaded, device, images);
    const Tensor logits = [&] {
      const NoGrad no_grad;
      return loaded.model(input).value();
    }();
    all.rows(begin, end).copy_from(logits);
    const Tensor softmax = Tensor::empty_like(logits);
    on(logits.stream(), [&](auto& s) { kernels::softmax(s, logits.view(), softmax.view()); });
    const std::vector<double> probabilities = softmax.to(DType::f64).to_vector<double>();
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      predictions.push_back(top_classes(chunk[i], std::span(probabilities).subspan(i * classes, classes),
                                        static_cast<std::size_t>(options.top)));
      if (prints_text) print(predictions.back(), loaded.input.classes);
    }
    if (!options.explain.empty())
      explanations.add(loaded, images, input, std::span(predictions).last(chunk.size()));
  }
  for (const std::string& warning : device.take_warnings())
    fmt::print(stderr, "{}: warning: {}\n", name, without_control_characters(warning));
  const PredictionSource source{
      .checkpoint = checkpoint.path.string(), .model = loaded.model.name(), .classes = loaded.input.classes};
  if (!options.json.empty()) write_text(options.json, to_json(predictions, source));
  if (!options.csv.empty()) write_text(options.csv, to_csv(predictions, source));
  if (!options.logits.empty()) io::write_file_atomically(options.logits, encode_npy(all));
  if (!options.explain.empty()) {
    const std::string& layer = explanations.write(options.explain);
    if (prints_text)
      fmt::print("where the network sees these classes, by its layer {}: {}\n", layer,
                 without_control_characters(options.explain));
  }
  return 0;
}

}  // namespace

int run_predict_program(const std::string& name, int argc, char** argv) {
  return run_main(name.c_str(), [&] { return run_predict(name, argc, argv); });
}

}  // namespace convoy
