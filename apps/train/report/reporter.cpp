#include "convoy/apps/train/report/reporter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "convoy/apps/common/text.h"
#include "convoy/apps/train/report/evaluation_file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"
#include "convoy/kernels/base/printable.h"

namespace convoy {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

/// Calls f(line, object) for every event of a log. Skips incomplete lines and lines that are not events.
template <class F>
void for_each_event(const fs::path& path, F&& f) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  while (std::getline(file, line)) {
    const Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object() && event.contains("event") && event["event"].is_string()) f(line, event);
  }
}

void write_whole(int descriptor, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      fail<OutputError>("{}: {}; the last checkpoint is intact", path.string(), std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

WorkPlan work_plan(const Setup& setup, const Trainer& trainer) {
  constexpr double kForwardShare =
      1.0 / 3;                  // of a step: a backward pass takes twice as long as a forward pass
  constexpr double kViews = 6;  // of --tta
  const data::DataSet& data = setup.data;
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(std::max<std::int64_t>(b, 1));
  };
  const double of_test = data.validation.size() == 0 ? 0 : ratio(data.test.size(), data.validation.size());
  return {.total_steps = trainer.total_steps(),
          .steps_per_evaluation = *setup.options.eval_every * trainer.steps_per_epoch(),
          .steps_of_evaluation = kForwardShare * ratio(data.evaluated().size(), *setup.options.batch_size),
          .final_evaluations = (*setup.options.tta ? kViews : 0) + of_test};
}

}  // namespace

RunLog::RunLog(fs::path path, std::optional<std::int64_t> resume_step, double elapsed_before)
    : path_(std::move(path)), file_(path_, O_RDWR | O_CREAT | O_APPEND), elapsed_before_(elapsed_before) {
  const io::LockResult lock = io::try_lock(file_.get());
  check(lock != io::LockResult::held, "--out {}: another process is using this directory",
        path_.parent_path().string());
  is_locked_ = lock == io::LockResult::acquired;
  truncate_to(resume_step.value_or(-1));
}

void RunLog::truncate_to(std::int64_t step) {
  std::string kept;
  if (step >= 0)
    for_each_event(path_, [&](const std::string& line, const Json& event) {
      if (event["event"] == "result") return;
      if (event.contains("step") && event["step"].is_number() && event["step"] > step) return;
      kept += line + "\n";
      if (const auto found = event.find("elapsed"); found != event.end() && found->is_number())
        elapsed_before_ = std::max(elapsed_before_, found->get<double>());
    });
  // In place, because the lock belongs to this file. A kill between the two calls loses log lines but no
  // checkpoint.
  if (::ftruncate(file_.get(), 0) != 0) fail<OutputError>("{}: {}", path_.string(), std::strerror(errno));
  write_whole(file_.get(), kept, path_);
}

void RunLog::write(std::string_view event, const Json& fields) {
  const std::chrono::duration<double> since_opening = std::chrono::steady_clock::now() - opened_;
  const double elapsed = elapsed_before_ + since_opening.count();
  Json line{{"event", event}, {"time", utc_now()}, {"elapsed", std::round(elapsed * 1e3) / 1e3}};
  line.update(fields);
  write_whole(file_.get(), json_text(line) + "\n", path_);
}

std::optional<Json> read_result(const fs::path& log) {
  std::optional<Json> result;
  for_each_event(log, [&](const std::string&, const Json& event) {
    if (event["event"] == "result") result = event;
  });
  return result;
}

void TimeLeft::step(std::int64_t step, Clock::time_point now) {
  if (step <= last_step_) return;
  if (first_step_ < 0) {
    first_step_ = step;
    first_ = now;
  }
  last_step_ = step;
  last_ = now;
}

void TimeLeft::evaluated(Clock::time_point now) {
  evaluated_step_ = last_step_;
  if (last_step_ < 0) return;  // before the first step
  in_evaluations_ += now - last_;
  ++evaluations_;
  last_ = now;
}

std::int64_t TimeLeft::evaluations_left() const {
  const std::int64_t total = plan_.total_steps;
  const std::int64_t interval = plan_.steps_per_evaluation > 0 ? plan_.steps_per_evaluation : total;
  const std::int64_t all = (total + interval - 1) / interval;
  const bool is_end = last_step_ == total;
  const bool is_due = (is_end || last_step_ % interval == 0) && evaluated_step_ != last_step_;
  return all - (is_end ? all : last_step_ / interval) + (is_due ? 1 : 0);
}

std::optional<double> TimeLeft::seconds() const {
  if (last_step_ <= first_step_) return std::nullopt;
  const double per_step =
      (Seconds(last_ - first_) - in_evaluations_).count() / static_cast<double>(last_step_ - first_step_);
  const double per_evaluation = evaluations_ > 0 ? in_evaluations_.count() / static_cast<double>(evaluations_)
                                                 : per_step * plan_.steps_of_evaluation;
  return static_cast<double>(plan_.total_steps - last_step_) * per_step +
         (static_cast<double>(evaluations_left()) + plan_.final_evaluations) * per_evaluation;
}

Reporter::Reporter(const fs::path& log, std::optional<std::int64_t> resume_step, const Setup& setup,
                   const Trainer& trainer, const Job& job)
    : log_(log, resume_step, trainer.state().train_seconds),
      trainer_(trainer),
      plan_(work_plan(setup, trainer)),
      time_left_(plan_),
      split_(setup.data.validation.size() > 0 ? "validation" : "test"),
      directory_(log.parent_path()),
      classes_(setup.data.classes),
      quiet_(setup.options.quiet),
      // The ranks of mpirun write to a pseudo-terminal that may end in a file.
      terminal_(!job.by_mpirun() && isatty(STDOUT_FILENO) != 0) {}

void Reporter::on_step(const training::StepResult& result) {
  if (!result.measured) return;
  last_ = *result.measured;
  Json step = {{"step", result.step},
               {"epoch", result.epoch},
               {"samples", result.total_samples},
               {"loss", last_.loss},
               {"average_loss", last_.average_loss},
               {"lr", result.lr},
               {"images_per_second", last_.images_per_second},
               {"step_ms", last_.step_ms},
               {"data_ms", last_.data_ms},
               {"memory_bytes", last_.memory_bytes}};
  if (last_.comm_ms) step["comm_ms"] = *last_.comm_ms;
  if (last_.scale) {
    step["scale"] = last_.scale->scale;
    step["skipped"] = last_.scale->skipped;
  }
  log_.write("step", step);
  show(result.step, result.lr, /*is_measured=*/true);
}

void Reporter::on_progress(std::int64_t step, double lr) { show(step, lr, /*is_measured=*/false); }

void Reporter::on_epoch(const training::EpochResult& result) {
  Json epoch = {
      {"step", result.step}, {"epoch", result.epoch}, {"samples", result.samples}, {"loss", result.loss}};
  if (result.accuracy) epoch["accuracy"] = *result.accuracy;
  log_.write("epoch", epoch);
  last_epoch_ = result;
  // The line of an evaluation has the accuracy too.
  const bool is_evaluated = result.step == plan_.total_steps ||
                            (plan_.steps_per_evaluation > 0 && result.step % plan_.steps_per_evaluation == 0);
  if (result.accuracy && !is_evaluated && trainer_.steps_per_epoch() > 1 && !quiet_)
    line(fmt::format("epoch {}: training accuracy {:.2f}%, loss {}", result.epoch + 1, *result.accuracy * 100,
                     format_loss(result.loss)));
}

void Reporter::on_evaluation(const training::EvaluationResult& result) {
  time_left_.evaluated(Clock::now());
  log_.write("eval", {{"step", result.step},
                      {"epoch", std::max<std::int64_t>(result.step - 1, 0) / trainer_.steps_per_epoch()},
                      {"split", split_},
                      {"loss", result.loss},
                      {"accuracy", result.accuracy},
                      {"count", result.count},
                      {"best", result.is_best}});
  accuracy_ = result.accuracy;
  std::string text =
      fmt::format("evaluation at step {}: {} accuracy {:.2f}%, loss {}{}", result.step, split_,
                  result.accuracy * 100, format_loss(result.loss), result.is_best ? " (best)" : "");
  if (last_epoch_ && last_epoch_->step == result.step && last_epoch_->accuracy)
    text += fmt::format("; training accuracy {:.2f}%", *last_epoch_->accuracy * 100);
  if (!quiet_) line(text);
  if (result.is_best) write_evaluation(directory_, result.step, *trainer_.evaluation(), classes_);
}

void Reporter::on_evaluation_progress(std::int64_t done, std::int64_t count) {
  const Clock::time_point now = Clock::now();
  if (quiet_ || now - last_draw_ < (terminal_ ? kRedraw : kPipeInterval)) return;
  last_draw_ = now;
  const std::string text = fmt::format("evaluating {}/{}", done, count);
  terminal_ ? draw(text) : line(text);
}

void Reporter::on_save(const training::SavedCheckpoint& checkpoint) {
  Json event{{"step", checkpoint.step}};
  set_path(event, "path", checkpoint.path.string());
  event["stall_ms"] = checkpoint.stall_ms;
  event["write_ms"] = checkpoint.write_ms;
  log_.write("save", event);
}

void Reporter::on_warning(std::int64_t step, const std::string& text) {
  log_.write("warning", {{"step", step}, {"message", text}});
  line("warning: " + text);
}

void Reporter::on_exception(std::int64_t step, const std::exception& error) {
  log_.write("error", {{"step", step}, {"message", error.what()}});
}

void Reporter::show(std::int64_t step, double lr, bool is_measured) {
  const Clock::time_point now = Clock::now();
  time_left_.step(step, now);
  if (quiet_ || (terminal_ ? now - last_draw_ < kRedraw : !is_measured)) return;
  const double epochs = static_cast<double>(step) / static_cast<double>(trainer_.steps_per_epoch());
  const double share = static_cast<double>(step) / static_cast<double>(plan_.total_steps);
  std::vector<LinePart> parts;
  if (terminal_) parts = {{progress_bar(share), 7}, {fmt::format("{:.0f}%", share * 100), 1}};
  parts.push_back({fmt::format("step {}/{}", step, plan_.total_steps)});
  parts.push_back({fmt::format("epoch {:.2f}", epochs), 5});
  parts.push_back({fmt::format("lr {:.4g}", lr), 6});
  if (last_.step_ms > 0) {
    parts.push_back({"loss " + format_loss(last_.loss)});
    parts.push_back({"average " + format_loss(last_.average_loss), 3});
    parts.push_back({fmt::format("{:.0f} images/s", last_.images_per_second)});
    parts.push_back({fmt::format("data {:.1f} ms", last_.data_ms), 4});
  }
  if (const auto seconds = time_left_.seconds())
    parts.push_back({fmt::format("left {}", format_duration(*seconds))});
  if (!terminal_) return line(fit_line(std::move(parts), std::string::npos));
  if (accuracy_ >= 0) parts.push_back({fmt::format("test {:.2f}%", accuracy_ * 100), 2});
  last_draw_ = now;
  draw(fit_line(std::move(parts), terminal_width() - 1));
}

void Reporter::line(const std::string& text) {
  clear();
  if (!terminal_) last_draw_ = Clock::now();
  fmt::print("{}\n", without_control_characters(text));
  std::fflush(stdout);
}

void Reporter::draw(const std::string& text) {
  fmt::print("\r{}\x1b[K", text.substr(0, terminal_width() - 1));
  std::fflush(stdout);
  drawn_ = true;
}

void Reporter::clear() {
  if (!drawn_) return;
  fmt::print("\r\x1b[K");
  std::fflush(stdout);
  drawn_ = false;
}

}  // namespace convoy
