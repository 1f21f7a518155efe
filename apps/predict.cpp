// convoy-predict: classes and probabilities of image files.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>

#include "apps/compute.h"
#include "apps/input_spec.h"
#include "apps/npy.h"
#include "apps/run_main.h"
#include "datasets/readers.h"
#include "engine/io/file.h"
#include "kernels/augment.h"
#include "kernels/runtime/check.h"
#include "kernels/softmax_cross_entropy.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string checkpoint;
  std::vector<std::string> files;
  std::int64_t top = 5;
  std::string logits;
  std::int64_t batch_size = 128;
  ComputeOptions compute;
};

CommandLine command_line(Options& o) {
  CommandLine line("convoy-predict", "The likeliest classes of images, by a trained network.");
  line.add_positionals("IMAGES", o.files,
                       "Image files, folders of them, or - for one image on standard input");
  line.add("checkpoint", &o.checkpoint, "Folder of a checkpoint, or of a run: then its best",
           {.value = "DIR", .default_is = "required"});
  line.add("top", &o.top, "Classes to show of each image", {.value = "N", .least = 1});
  line.add("logits", &o.logits, "Write the network's outputs to this file (NumPy, images x classes)",
           {.value = "FILE.npy"});
  line.add("batch-size", &o.batch_size, "Images computed at once",
           {.value = "N", .least = 1, .most = 1 << 20});
  add_compute_flags(line, o.compute);
  return line;
}

bool is_image_name(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png" || extension == ".bmp";
}

/// Folders become the images in them, at any depth, in the order of their names.
std::vector<std::string> expand(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    if (!fs::is_directory(argument)) {
      files.push_back(argument);
      continue;
    }
    const std::size_t before = files.size();
    for (const auto& entry : fs::recursive_directory_iterator(argument))
      if (entry.is_regular_file() && is_image_name(entry.path())) files.push_back(entry.path().string());
    if (files.size() == before) fail<DataError>("{}: no image in this folder (JPEG, PNG, BMP)", argument);
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
  }
  return files;
}

/// u8 [H, W, 3] as the network wants it: [H, W, C].
Tensor read_input(const std::string& file, const Shape& wanted) {
  const int size = wanted[0] == wanted[1] ? static_cast<int>(wanted[0]) : 0;
  Tensor image;
  if (file == "-") {
    const std::string bytes(std::istreambuf_iterator<char>(std::cin), {});
    image = decode_image(bytes, "standard input", size);
  } else {
    image = read_image(file, size);
  }
  if (image.size(0) != wanted[0] || image.size(1) != wanted[1])
    fail<DataError>("{}: {}x{} pixels, expected {}x{}", file, image.size(0), image.size(1), wanted[0],
                    wanted[1]);
  if (wanted[2] == 3) return image;
  if (wanted[2] != 1)
    fail<DataError>("{}: the network takes {} channels, images have 1 or 3", file, wanted[2]);
  const Tensor grey = Tensor::empty({wanted[0], wanted[1], 1}, DType::u8, image.device());
  const auto* from = image.view().as<std::uint8_t>();
  auto* to = grey.view().as<std::uint8_t>();
  for (std::int64_t i = 0; i < grey.numel(); ++i) {
    // Luma of ITU-R BT.601, in 1/256; three equal channels stay what they are.
    const int luma = 77 * from[3 * i] + 150 * from[3 * i + 1] + 29 * from[3 * i + 2];
    to[i] = static_cast<std::uint8_t>((luma + 128) >> 8);
  }
  return grey;
}

/// Logits [n, classes] of a chunk of files.
Tensor compute_logits(const LoadedModel& loaded, const Device& device, std::span<const std::string> files) {
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
    augment(s, pixels.view(), index.view(), index.view(), loaded.input.transform.augment, Random{},
            input.view());
  });
  return loaded.model(input).value();
}

void print_top(const std::string& file, std::span<const double> probabilities,
               const std::vector<std::string>& classes, std::size_t top) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return probabilities[a] > probabilities[b]; });
  fmt::print("{}\n", file == "-" ? "standard input" : file);
  for (std::size_t i = 0; i < std::min(top, order.size()); ++i)
    fmt::print("  {:6.2f}%  {}\n", probabilities[order[i]] * 100, classes[order[i]]);
}

std::vector<double> probabilities_of(const Tensor& logits) {
  const Tensor probabilities = Tensor::empty_like(logits);
  on(logits.stream(), [&](auto& s) { softmax(s, logits.view(), probabilities.view()); });
  return probabilities.to(DType::f64).to_vector<double>();
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line = command_line(options);
  if (!line.parse(argc, argv)) return 0;
  check(!options.checkpoint.empty(),
        "--checkpoint: missing, expected the folder of a checkpoint or of a run");
  check(!options.files.empty(), "no images: name files, folders, or - for standard input");
  check(std::count(options.files.begin(), options.files.end(), "-") <= 1,
        "'-': standard input can be read once only");
  const Device device = open_device(options.compute, parse_precision("fp32"));
  device.set_may_time(false);  // a few images are too short to gain by it
  const LoadedModel loaded = load_model(find_checkpoint(options.checkpoint), device);
  const std::vector<std::string> files = expand(options.files);

  const auto classes = loaded.input.classes.size();
  const auto count = static_cast<std::int64_t>(files.size());
  const Tensor all = Tensor::empty({count, static_cast<std::int64_t>(classes)}, loaded.dtype, Device::cpu());
  for (std::int64_t begin = 0; begin < count; begin += options.batch_size) {
    const std::int64_t end = std::min(begin + options.batch_size, count);
    const auto chunk =
        std::span(files).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const Tensor logits = compute_logits(loaded, device, chunk);
    all.rows(begin, end).copy_from(logits);
    const std::vector<double> probabilities = probabilities_of(logits);
    for (std::size_t i = 0; i < chunk.size(); ++i)
      print_top(chunk[i], std::span(probabilities).subspan(i * classes, classes), loaded.input.classes,
                static_cast<std::size_t>(options.top));
  }
  if (!options.logits.empty()) write_file_atomically(options.logits, encode_npy(all));
  return 0;
}

}  // namespace
}  // namespace convoy

int main(int argc, char** argv) {
  return convoy::run_main("convoy-predict", [&] { return convoy::run(argc, argv); });
}
