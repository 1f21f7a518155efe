#include "convoy/apps/data/evaluator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

/// Replaces this rank's sums by the sums over all ranks. Counts stay exact: f64 represents integers up to
/// 2^53.
void add_up(dist::Communicator& comm, Evaluation& result, double& loss_sum, double& top5_sum) {
  std::vector<double> numbers = {loss_sum, top5_sum};
  const std::array counts = {&result.images, &result.correct, &result.predicted, &result.confusion};
  for (const std::vector<std::int64_t>* some : counts)
    numbers.insert(numbers.end(), some->begin(), some->end());
  const auto size = static_cast<std::int64_t>(numbers.size());
  dist::all_reduce_and_wait(comm, {numbers.data(), {size}, DType::f64});
  loss_sum = numbers[0];
  top5_sum = numbers[1];
  auto next = numbers.begin() + 2;
  for (std::vector<std::int64_t>* some : counts)
    for (std::int64_t& count : *some) count = std::llround(*next++);
}

/// Returns how many rows of logits [N, C] have the logit of their label among the five highest.
double count_top5(const Tensor& logits, const std::vector<std::int32_t>& labels) {
  const auto values = logits.to(DType::f64).to_vector<double>();
  const std::size_t classes = values.size() / std::max<std::size_t>(labels.size(), 1);
  double count = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double* const row = values.data() + i * classes;
    const auto label = static_cast<std::size_t>(labels[i]);
    std::size_t higher = 0;
    for (std::size_t c = 0; c < classes; ++c)
      if (row[c] > row[label] || (row[c] == row[label] && c < label)) ++higher;
    if (higher < 5) ++count;
  }
  return count;
}

/// Yields the logits of all images, in batches.
class LogitsReader {
 public:
  LogitsReader(const models::Model& model, const DeviceContext& device, const data::ImageSet& set,
               const EvaluationOptions& options)
      : model_(model) {
    const int ranks = options.comm != nullptr ? options.comm->size() : 1;
    std::vector<data::TransformSpec::View> views{{.transform = options.transform.evaluation()}};
    if (options.views) views = options.transform.views();
    for (const data::TransformSpec::View& view : views)
      views_.push_back(
          {std::make_unique<data::DataLoader>(
               set,
               data::LoaderOptions{.global_batch = options.batch_size * ranks,
                                   .rank = options.comm != nullptr ? options.comm->rank() : 0,
                                   .world_size = ranks,
                                   .shuffle = false,
                                   .transform = view.transform,
                                   .dtype = options.dtype,
                                   .workers = options.views ? std::min(options.workers, 1) : options.workers,
                                   .max_epochs = 1,
                                   .device = device,
                                   .resident = options.resident_images.defined(),
                                   .resident_images = options.resident_images}),
           view.weight});
  }

  struct Batch {
    Tensor labels;
    Tensor ids;       // indices of the images
    Variable logits;  // undefined if this rank has no samples of the batch
  };
  /// Returns the next batch, or nullopt after the last one.
  std::optional<Batch> next() {
    Batch batch;
    for (const View& view : views_) {
      const std::vector<data::Batch> step = view.loader->next_step();
      if (step.empty()) return std::nullopt;
      batch.labels = step.front().labels;
      batch.ids = step.front().ids;
      if (batch.labels.size(0) == 0) continue;
      Variable logits = model_(step.front().images);
      if (views_.size() > 1) logits = logits * view.weight;
      batch.logits = batch.logits.defined() ? batch.logits + logits : logits;
    }
    return batch;
  }

 private:
  struct View {
    std::unique_ptr<data::DataLoader> loader;
    double weight;
  };
  const models::Model& model_;
  std::vector<View> views_;
};

/// Copies the logits of a batch to the rows of `all` that its ids name.
void keep_logits(const LogitsReader::Batch& batch, const Tensor& all) {
  const Tensor logits = batch.logits.value().to(all.dtype()).to(Device::cpu());
  std::int64_t row = 0;
  for (const std::int32_t id : batch.ids.to_vector<std::int32_t>()) {
    all.rows(id, id + 1).copy_from(logits.rows(row, row + 1));
    ++row;
  }
}

/// Returns the probability of class `c` after the softmax of a row of logits.
double probability_of(const float* row, std::size_t classes, std::size_t c) {
  double sum = 0;
  for (std::size_t other = 0; other < classes; ++other)
    sum += std::exp(static_cast<double>(row[other]) - static_cast<double>(row[c]));
  return 1 / sum;
}

/// Keeps those with the highest probabilities, in descending order; equal ones in the order of the set.
void keep_most_confident(std::vector<Mistake>& mistakes) {
  std::ranges::sort(mistakes, {},
                    [](const Mistake& mistake) { return std::pair(-mistake.probability, mistake.image); });
  mistakes.resize(std::min(mistakes.size(), Evaluation::kMaxMistakes));
}

/// Adds the mistakes of a batch. `logits` is [N, C] on any device; labels, predictions and ids (indices in the
/// set) have N elements. Blocks until the logits are computed if there is a mistake.
void add_mistakes(std::vector<Mistake>& mistakes, const Tensor& logits,
                  const std::vector<std::int32_t>& labels, const std::vector<std::int32_t>& predictions,
                  const std::vector<std::int32_t>& ids) {
  if (labels == predictions) return;
  const std::vector<float> values = logits.to(DType::f32).to(Device::cpu()).to_vector<float>();
  const auto classes = static_cast<std::size_t>(logits.size(1));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == predictions[i]) continue;
    const double probability =
        probability_of(values.data() + i * classes, classes, static_cast<std::size_t>(predictions[i]));
    if (std::isfinite(probability)) mistakes.push_back({ids[i], labels[i], predictions[i], probability, {}});
  }
  keep_most_confident(mistakes);
}

/// Adds the mistakes of the other ranks on rank 0, and removes them on the others. Collective.
void gather_mistakes(std::vector<Mistake>& mistakes, dist::Communicator& comm) {
  nlohmann::json local = nlohmann::json::array();
  for (const Mistake& mistake : mistakes)
    local.push_back({mistake.image, mistake.label, mistake.prediction, mistake.probability});
  mistakes.clear();
  for (const std::string& text : comm.gather_object(json_text(local)))
    for (const nlohmann::json& each : nlohmann::json::parse(text))
      mistakes.push_back({each[0], each[1], each[2], each[3], {}});
  keep_most_confident(mistakes);
}

/// Sets the files of the mistakes, and returns their images, one per row.
Tensor images_of(std::vector<Mistake>& mistakes, const data::ImageSet& set) {
  if (mistakes.empty()) return {};
  std::vector<std::int32_t> rows;
  for (Mistake& mistake : mistakes) {
    rows.push_back(static_cast<std::int32_t>(mistake.image));
    mistake.file = set.file(mistake.image);
  }
  return data::select(set, rows).images;
}

}  // namespace

std::vector<Evaluation::Scores> Evaluation::scores_by_class() const {
  const auto fraction = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  std::vector<Scores> all;
  for (std::size_t c = 0; c < images.size(); ++c) {
    const auto right = static_cast<double>(correct[c]);
    Scores& scores = all.emplace_back();
    scores.precision = fraction(right, static_cast<double>(predicted[c]));
    scores.recall = fraction(right, static_cast<double>(images[c]));
    scores.f1 = fraction(2 * right, static_cast<double>(predicted[c] + images[c]));
  }
  return all;
}

std::vector<std::vector<std::int64_t>> Evaluation::confusion_rows() const {
  std::vector<std::vector<std::int64_t>> rows;
  for (auto row = confusion.begin(); row != confusion.end(); row += classes)
    rows.emplace_back(row, row + classes);
  return rows;
}

Evaluation::Scores Evaluation::macro_scores() const {
  const std::vector<Scores> all = scores_by_class();
  Scores mean;
  double classes_seen = 0;
  for (std::size_t c = 0; c < all.size(); ++c) {
    if (images[c] + predicted[c] == 0) continue;
    mean.precision += all[c].precision;
    mean.recall += all[c].recall;
    mean.f1 += all[c].f1;
    ++classes_seen;
  }
  for (double* sum : {&mean.precision, &mean.recall, &mean.f1}) *sum /= std::max(classes_seen, 1.0);
  return mean;
}

std::optional<Evaluation> evaluate(const models::Model& model, const DeviceContext& device,
                                   const data::ImageSet& set, const EvaluationOptions& options) {
  const NoGrad no_grad;
  const int ranks = options.comm != nullptr ? options.comm->size() : 1;
  LogitsReader reader(model, device, set, options);
  Evaluation result{.classes = model.classes()};
  const auto classes = static_cast<std::size_t>(result.classes);
  result.images.resize(classes);
  result.correct.resize(classes);
  result.predicted.resize(classes);
  if (result.classes <= Evaluation::kMaxConfusionClasses) result.confusion.resize(classes * classes);
  if (options.keep_logits)  // zeros, so that the sum over ranks has the rows of all
    result.logits = Tensor::zeros({set.size(), result.classes},
                                  options.dtype == DType::f64 ? DType::f64 : DType::f32, Device::cpu());
  double loss_sum = 0, top5_sum = 0;
  std::int64_t done = 0;
  while (true) {
    if (options.stop && options.stop()) return std::nullopt;
    const std::optional<LogitsReader::Batch> batch = reader.next();
    if (!batch) break;
    if (!batch->logits.defined()) continue;
    if (options.keep_logits) keep_logits(*batch, result.logits);
    loss_sum += cross_entropy_sum(batch->logits, batch->labels).value().item();
    const std::vector<std::int32_t> labels = batch->labels.to_vector<std::int32_t>();
    const std::vector<std::int32_t> predictions = argmax(batch->logits, 1).to_vector<std::int32_t>();
    add_mistakes(result.mistakes, batch->logits.value(), labels, predictions,
                 batch->ids.to_vector<std::int32_t>());
    if (options.top5) top5_sum += count_top5(batch->logits.value(), labels);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto label = static_cast<std::size_t>(labels[i]),
                 prediction = static_cast<std::size_t>(predictions[i]);
      ++result.images[label];
      ++result.predicted[prediction];
      if (label == prediction) ++result.correct[label];
      if (!result.confusion.empty()) ++result.confusion[label * classes + prediction];
    }
    done += static_cast<std::int64_t>(labels.size());
    if (options.progress) options.progress(std::min(done * ranks, set.size()), set.size());
  }
  if (options.comm != nullptr) {
    add_up(*options.comm, result, loss_sum, top5_sum);
    if (options.keep_logits) dist::all_reduce_and_wait(*options.comm, result.logits.view());
    gather_mistakes(result.mistakes, *options.comm);
  }
  result.mistake_images = images_of(result.mistakes, set);
  result.count = std::accumulate(result.images.begin(), result.images.end(), std::int64_t{0});
  if (result.count == 0) fail<DataError>("evaluation: the set has no images");
  const auto correct = std::accumulate(result.correct.begin(), result.correct.end(), std::int64_t{0});
  result.loss = loss_sum / static_cast<double>(result.count);
  result.accuracy = static_cast<double>(correct) / static_cast<double>(result.count);
  if (options.top5) result.top5_accuracy = top5_sum / static_cast<double>(result.count);
  return result;
}

}  // namespace convoy
