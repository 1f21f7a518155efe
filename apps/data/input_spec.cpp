#include "convoy/apps/data/input_spec.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "convoy/apps/common/text.h"
#include "convoy/apps/flags/config_file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"
#include "convoy/models/models.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKey = "input";

void floats_from_json(const nlohmann::json& list, std::array<float, 4>& values) {
  const auto floats = list.get<std::vector<float>>();
  std::copy_n(floats.begin(), std::min(floats.size(), values.size()), values.begin());
}

models::Stem parse_stem(const std::string& stem) {
  return stem == "cifar"      ? models::Stem::cifar
         : stem == "imagenet" ? models::Stem::imagenet
                              : models::Stem::automatic;
}

/// Returns the activation; nullopt for "auto".
std::optional<nn::ActivationKind> parse_activation(const std::string& activation) {
  if (activation == "gelu") return nn::ActivationKind::gelu;
  if (activation == "silu") return nn::ActivationKind::silu;
  return std::nullopt;
}

}  // namespace

void write_input_spec(const InputSpec& spec, std::map<std::string, std::string>& extra) {
  const auto floats = [channels = spec.image[2]](const std::array<float, 4>& values) {
    return std::vector<float>(values.begin(), values.begin() + channels);
  };
  const nlohmann::json json{{"dataset", spec.dataset},
                            {"classes", spec.classes},
                            {"image", spec.image.sizes()},
                            {"mean", floats(spec.transform.augment.mean)},
                            {"inverse_std", floats(spec.transform.augment.inverse_std)}};
  extra[kKey] = json_text(json);
}

InputSpec read_input_spec(const io::Manifest& manifest, const fs::path& checkpoint) {
  const auto found = manifest.extra.find(kKey);
  if (found == manifest.extra.end())
    fail<CheckpointError>(
        "{}: the manifest has no input specification; expected a checkpoint written by convoy-train",
        checkpoint.string());
  try {
    const nlohmann::json json = nlohmann::json::parse(found->second);
    InputSpec spec;
    spec.dataset = json.at("dataset");
    spec.classes = json.at("classes").get<std::vector<std::string>>();
    const auto sizes = json.at("image").get<std::vector<std::int64_t>>();
    spec.image = Shape(std::span(sizes));
    floats_from_json(json.at("mean"), spec.transform.augment.mean);
    floats_from_json(json.at("inverse_std"), spec.transform.augment.inverse_std);
    if (spec.classes.empty() || spec.image.rank() != 3)
      fail<CheckpointError>("{}: the manifest has {} classes and images of shape {}, expected [H, W, C]",
                            checkpoint.string(), spec.classes.size(), spec.image.text());
    return spec;
  } catch (const nlohmann::json::exception& error) {
    fail<CheckpointError>("{}: the entry '{}' of the manifest is damaged: {}", checkpoint.string(), kKey,
                          error.what());
  }
}

void check_checkpoint_directory(const fs::path& path, const std::string& shown) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return;
  if (is_transient(error.value())) fail_read<CheckpointError>(error.value(), "{}: cannot be read", shown);
  if (!fs::exists(status))
    fail<CheckpointError>("{}: no checkpoint found ({}), expected a checkpoint or run directory", shown,
                          error ? error.message() : "No such file or directory");
  // A file of a checkpoint, or one that names a checkpoint next to it.
  fs::path meant = path.parent_path();
  if (path.filename() == "BEST" || path.filename() == "LATEST") {
    std::string name;
    std::ifstream(path) >> name;
    meant /= name;
  }
  const bool is_checkpoint = fs::exists(meant / io::kManifestFile, error);
  fail<CheckpointError>("{}: a file, expected a checkpoint or run directory{}", shown,
                        is_checkpoint ? fmt::format("; did you mean {}?", meant.string()) : "");
}

io::Checkpoint find_checkpoint(const fs::path& path, std::string_view flag) {
  check_checkpoint_directory(path, path.string());
  std::error_code ignored;
  for (const std::string_view file : {io::kManifestFile, io::kModelFile})
    if (fs::exists(path / file, ignored)) return io::open_checkpoint(path);
  const bool is_run = fs::is_directory(path / "checkpoints", ignored);
  const io::CheckpointDirectory checkpoints(is_run ? path / "checkpoints" : path);
  std::string problem;
  try {
    if (auto best = checkpoints.best()) return *std::move(best);
  } catch (const CheckpointError& error) {
    problem = fmt::format("the best checkpoint cannot be used: {}", error.what());
  }
  std::vector<std::string> damaged;
  auto latest = checkpoints.latest(&damaged);
  if (problem.empty() && !damaged.empty())
    problem = fmt::format("the latest checkpoint cannot be used: {}", damaged.front());
  if (problem.empty() && latest) return *std::move(latest);
  if (problem.empty())
    fail<CheckpointError>("{}: no checkpoint found, expected a checkpoint or run directory", path.string());
  // Not another checkpoint instead: the caller would report its accuracy as that of the one it has asked for.
  fail<CheckpointError>("{}; {}", problem,
                        latest ? fmt::format("{} {} uses an intact one", flag, latest->path.string())
                               : "no other checkpoint of this run is intact");
}

LoadedModel load_model(const io::Checkpoint& checkpoint, const DeviceContext& device) {
  const io::Manifest& manifest = checkpoint.manifest;
  InputSpec input = read_input_spec(manifest, checkpoint.path);
  std::map<std::string, std::string> flags = stored_flags(manifest);
  models::Model model =
      build_model({.model = manifest.model, .stem = flags["stem"], .activation = flags["activation"]},
                  input.image, input.classes.size(), 0, device);
  const DType dtype = manifest.dtype == to_string(DType::f64) ? DType::f64 : DType::f32;
  model.to(dtype);
  io::load_checkpoint(checkpoint, model.root(), nullptr);
  return {std::move(model), manifest, std::move(input), dtype, std::move(flags)};
}

models::Model build_model(const NetworkFlags& flags, const Shape& image, std::size_t classes,
                          std::uint64_t seed, const DeviceContext& device) {
  return models::make(flags.model, {.input = image,
                                    .classes = static_cast<int>(classes),
                                    .seed = seed,
                                    .stem = parse_stem(flags.stem),
                                    .activation = parse_activation(flags.activation),
                                    .device = device});
}

std::string resolve_stem(const std::string& name, const std::string& stem, const Shape& image) {
  if (!models::find(name).has_stems) return stem;
  return models::resolve_stem(parse_stem(stem), image) == models::Stem::cifar ? "cifar" : "imagenet";
}

std::string resolve_activation(const std::string& name, const std::string& activation) {
  return activation == "auto" && models::find(name).has_activations ? "gelu" : activation;
}

std::map<std::string, std::string> stored_flags(const io::Manifest& manifest) {
  return parse_values(value_at(manifest.extra, "config"), "the checkpoint's configuration");
}

}  // namespace convoy
