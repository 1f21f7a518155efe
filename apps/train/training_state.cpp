#include "convoy/apps/train/training_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"
#include "convoy/kernels/base/json_text.h"

namespace nlohmann {

/// An optional without a value is null.
template <class T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& json, const std::optional<T>& value) {
    if (value) json = *value;
  }
  static void from_json(const json& json, std::optional<T>& value) {
    if (!json.is_null()) value = json.get<T>();
  }
};

}  // namespace nlohmann

namespace convoy {

namespace optim {
CONVOY_DEFINE_JSON(LossScaler::State, scale, good_steps, skipped)
}  // namespace optim

namespace training {
CONVOY_DEFINE_JSON(EvaluationResult, step, accuracy, loss, count)
CONVOY_DEFINE_JSON(EpochTotals, samples, loss, counted, correct)
CONVOY_DEFINE_JSON(ReduceOnPlateau::State, first, rate, best, bad)
}  // namespace training

namespace {

constexpr const char* kKey = "training";

/// Returns all but the position.
nlohmann::json to_json(const TrainingState& state) {
  return {{"train_seconds", state.train_seconds},
          {"loss_sum", state.losses.average.sum},
          {"loss_weight", state.losses.average.weight},
          {"last_loss", state.losses.last},
          {"epoch_totals", state.losses.totals},
          {"loss_scale", state.scale},
          {"evaluated", state.evaluated},
          {"best", state.stopping.best},
          {"evaluations_since_best", state.stopping.evaluations_since_best},
          {"plateau", state.plateau}};
}

/// Adds what to_json() returns to the position.
TrainingState from_json(nlohmann::json json, TrainingState state) {
  for (const char* name : {"evaluated", "best"})  // JSON has no NaN: such a loss is stored as null
    if (nlohmann::json& score = json.at(name); score.is_object() && score.at("loss").is_null())
      score["loss"] = NAN;
  json.at("train_seconds").get_to(state.train_seconds);
  json.at("loss_sum").get_to(state.losses.average.sum);
  json.at("loss_weight").get_to(state.losses.average.weight);
  json.at("last_loss").get_to(state.losses.last);
  json.at("epoch_totals").get_to(state.losses.totals);
  json.at("loss_scale").get_to(state.scale);
  json.at("evaluated").get_to(state.evaluated);
  json.at("best").get_to(state.stopping.best);
  json.at("evaluations_since_best").get_to(state.stopping.evaluations_since_best);
  json.at("plateau").get_to(state.plateau);
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
  manifest.extra[kKey] = json_text(to_json(state));
}

std::string format_state(const TrainingState& state) {
  return json_text(nlohmann::json{state.step, state.epoch, state.epoch_step, state.samples, to_json(state)});
}

TrainingState parse_state(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return from_json(json[4], {.step = json[0], .epoch = json[1], .epoch_step = json[2], .samples = json[3]});
}

TrainingState read_state(const io::Manifest& manifest, const std::filesystem::path& checkpoint) {
  const auto found = manifest.extra.find(kKey);
  if (found == manifest.extra.end())
    fail<CheckpointError>(
        "{}: manifest.json has no entry '{}', expected a checkpoint written by convoy-train",
        checkpoint.string(), kKey);
  try {
    return from_json(nlohmann::json::parse(found->second), {.step = manifest.step,
                                                            .epoch = manifest.epoch,
                                                            .epoch_step = manifest.epoch_step,
                                                            .samples = manifest.samples});
  } catch (const std::exception& error) {
    fail<CheckpointError>("{}: entry '{}' of manifest.json is damaged: {}", checkpoint.string(), kKey,
                          error.what());
  }
}

}  // namespace convoy
