#include "convoy/apps/train/training_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

constexpr const char* kKey = "training";

using Json = nlohmann::ordered_json;

Json score_to_json(const std::optional<training::EvaluationResult>& score) {
  if (!score) return nullptr;
  return {
      {"step", score->step}, {"accuracy", score->accuracy}, {"loss", score->loss}, {"count", score->count}};
}

std::optional<training::EvaluationResult> score_from_json(const Json& json) {
  if (json.is_null()) return std::nullopt;
  // JSON has no NaN or infinity: a loss that is not finite is stored as null.
  return training::EvaluationResult{.step = json.at("step"),
                                    .accuracy = json.at("accuracy"),
                                    .loss = json.at("loss").is_null() ? NAN : json.at("loss").get<double>(),
                                    .count = json.at("count")};
}

Json scale_to_json(const std::optional<optim::LossScaler::State>& scale) {
  if (!scale) return nullptr;
  return {{"scale", scale->scale}, {"good_steps", scale->good_steps}, {"skipped", scale->skipped}};
}

std::optional<optim::LossScaler::State> scale_from_json(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return optim::LossScaler::State{
      .scale = json.at("scale"), .good_steps = json.at("good_steps"), .skipped = json.at("skipped")};
}

Json totals_to_json(const training::EpochTotals& totals) {
  return {{"samples", totals.samples},
          {"loss", totals.loss},
          {"counted", totals.counted},
          {"correct", totals.correct}};
}

training::EpochTotals totals_from_json(const Json& json) {
  return {.samples = json.at("samples"),
          .loss = json.at("loss"),
          .counted = json.at("counted"),
          .correct = json.at("correct")};
}

/// The best loss is null if there is none.
Json plateau_to_json(const std::optional<training::ReduceOnPlateau::State>& plateau) {
  if (!plateau) return nullptr;
  return {{"first", plateau->first},
          {"rate", plateau->rate},
          {"best", plateau->best ? Json(*plateau->best) : Json()},
          {"bad", plateau->bad}};
}

std::optional<training::ReduceOnPlateau::State> plateau_from_json(const Json& json) {
  if (json.is_null()) return std::nullopt;
  training::ReduceOnPlateau::State state{
      .first = json.at("first"), .rate = json.at("rate"), .best = {}, .bad = json.at("bad")};
  if (!json.at("best").is_null()) state.best = json.at("best").get<double>();
  return state;
}

}  // namespace

bool TrainingState::advance(std::int64_t step_samples, std::int64_t steps_per_epoch) {
  ++step;
  samples += step_samples;
  if (++epoch_step != steps_per_epoch) return false;
  epoch_step = 0;
  ++epoch;
  return true;
}

void write_state(const TrainingState& state, io::Manifest& manifest, const std::string& split) {
  manifest.step = state.step;
  manifest.epoch = state.epoch;
  manifest.epoch_step = state.epoch_step;
  manifest.samples = state.samples;
  if (state.evaluated && state.evaluated->step == state.step) {
    manifest.metrics[split + "_accuracy"] = state.evaluated->accuracy;
    manifest.metrics[split + "_loss"] = state.evaluated->loss;
  }
  manifest.extra[kKey] = json_text(Json{{"train_seconds", state.train_seconds},
                                        {"loss_sum", state.losses.average.sum},
                                        {"loss_weight", state.losses.average.weight},
                                        {"last_loss", state.losses.last},
                                        {"epoch_totals", totals_to_json(state.losses.totals)},
                                        {"loss_scale", scale_to_json(state.scale)},
                                        {"evaluated", score_to_json(state.evaluated)},
                                        {"best", score_to_json(state.stopping.best)},
                                        {"evaluations_since_best", state.stopping.evaluations_since_best},
                                        {"plateau", plateau_to_json(state.plateau)}});
}

std::string format_state(const TrainingState& state) {
  io::Manifest manifest;
  write_state(state, manifest);
  return json_text(Json{{"step", manifest.step},
                        {"epoch", manifest.epoch},
                        {"epoch_step", manifest.epoch_step},
                        {"samples", manifest.samples},
                        {kKey, manifest.extra[kKey]}});
}

TrainingState parse_state(const std::string& text) {
  const Json json = Json::parse(text);
  io::Manifest manifest;
  manifest.step = json.at("step");
  manifest.epoch = json.at("epoch");
  manifest.epoch_step = json.at("epoch_step");
  manifest.samples = json.at("samples");
  manifest.extra[kKey] = json.at(kKey).get<std::string>();
  return read_state(manifest, "the training state of rank 0");
}

TrainingState read_state(const io::Manifest& manifest, const std::filesystem::path& checkpoint) {
  const auto found = manifest.extra.find(kKey);
  if (found == manifest.extra.end())
    fail<CheckpointError>(
        "{}: manifest.json has no entry '{}', expected a checkpoint written by convoy-train",
        checkpoint.string(), kKey);
  try {
    const Json json = Json::parse(found->second);
    return {.step = manifest.step,
            .epoch = manifest.epoch,
            .epoch_step = manifest.epoch_step,
            .samples = manifest.samples,
            .train_seconds = json.at("train_seconds"),
            .losses = {.last = json.at("last_loss"),
                       .average = {.sum = json.at("loss_sum"), .weight = json.at("loss_weight")},
                       .totals = totals_from_json(json.at("epoch_totals"))},
            .scale = scale_from_json(json.at("loss_scale")),
            .evaluated = score_from_json(json.at("evaluated")),
            .stopping = {.best = score_from_json(json.at("best")),
                         .evaluations_since_best = json.at("evaluations_since_best")},
            .plateau = plateau_from_json(json.at("plateau"))};
  } catch (const nlohmann::json::exception& error) {
    fail<CheckpointError>("{}: entry '{}' of manifest.json is damaged: {}", checkpoint.string(), kKey,
                          error.what());
  }
}

}  // namespace convoy
