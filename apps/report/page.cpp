#include "convoy/apps/report/page.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "convoy/kernels/base/json_text.h"
#include "convoy/version.h"

namespace convoy::report {
namespace {

std::optional<double> number(const Json& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

/// Returns the mean of a field over the events from `begin` to `end`; null if none has it.
Json mean_of(const std::vector<const Json*>& events, std::size_t begin, std::size_t end, const char* name) {
  double sum = 0;
  int count = 0;
  for (std::size_t i = begin; i < end; ++i)
    if (const auto value = number(*events[i], name)) {
      sum += *value;
      ++count;
    }
  return count == 0 ? Json() : Json(sum / count);
}

std::vector<const Json*> events_of(const RunRecord& run, const char* kind) {
  std::vector<const Json*> found;
  for (const Json& event : run.events)
    if (event["event"] == kind && number(event, "step")) found.push_back(&event);
  return found;
}

/// Returns the curves of the step events, as lists by field.
Json curves(const RunRecord& run) {
  const std::vector<const Json*> steps = events_of(run, "step");
  const std::size_t group = std::max<std::size_t>(1, (steps.size() + kMaxPoints - 1) / kMaxPoints);
  Json lists{{"group", group}};
  for (const char* name :
       {"step", "elapsed", "loss", "lr", "images_per_second", "step_ms", "data_ms", "comm_ms"})
    lists[name] = Json::array();
  for (std::size_t begin = 0; begin < steps.size(); begin += group) {
    const std::size_t end = std::min(begin + group, steps.size());
    lists["step"].push_back((*steps[end - 1])["step"]);
    lists["elapsed"].push_back(number(*steps[end - 1], "elapsed").value_or(0));
    for (const char* name : {"loss", "lr", "images_per_second", "step_ms", "data_ms", "comm_ms"})
      lists[name].push_back(mean_of(steps, begin, end, name));
  }
  return lists;
}

/// Returns the events of a kind that have an accuracy and a time.
Json accuracies(const RunRecord& run, const char* kind) {
  Json list = Json::array();
  for (const Json* event : events_of(run, kind))
    if (number(*event, "accuracy") && number(*event, "elapsed")) list.push_back(*event);
  return list;
}

std::string state_of(const RunRecord& run) {
  if (run.last("result") != nullptr) return "complete";
  return run.events.back()["event"] == "error" ? "failed" : "in progress";
}

Json messages(const RunRecord& run) {
  Json list = Json::array();
  for (const Json& event : run.events)
    if (event["event"] == "warning" || event["event"] == "error")
      list.push_back({{"kind", event["event"]},
                      {"step", event.value("step", Json())},
                      {"text", event.value("message", Json(""))}});
  for (const std::string& note : run.notes)
    list.push_back({{"kind", "note"}, {"step", nullptr}, {"text", note}});
  return list;
}

bool is_step_part(const std::string& name) {
  return name == "data wait" || name == "forward" || name == "backward" || name == "wait for gradients" ||
         name == "optimizer";
}

/// Returns JSON that a script element may contain: without '<', the data cannot end the element.
std::string to_script_text(const Json& json) {
  std::string text;
  for (const char c : json_text(json)) text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return text;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    for (std::size_t j = i; j < i + 3; ++j)
      group = group << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0U);
    for (std::size_t digit = 0; digit < 4; ++digit)
      text += i + digit <= bytes.size() ? kDigits[group >> (18 - 6 * digit) & 63] : '=';
  }
  return text;
}

Json timeline_of(const Json& trace_events) {
  struct Span {
    std::string name;
    double begin, end;  // ms
  };
  std::map<std::int64_t, std::vector<Span>> ranks;
  for (const Json& event : trace_events) {
    if (!event.is_object() || event.value("ph", Json()) != "X" || !event.value("name", Json()).is_string())
      continue;
    const auto rank = number(event, "pid"), begin = number(event, "ts"), length = number(event, "dur");
    const std::string name = event["name"];
    if (rank && begin && length && (is_step_part(name) || name.starts_with("bucket")))
      ranks[static_cast<std::int64_t>(*rank)].push_back({name, *begin / 1e3, (*begin + *length) / 1e3});
  }
  // A step is from the end of an optimizer to the end of the next one. The median leaves out those with evaluations.
  std::vector<double> ends;
  if (!ranks.empty())
    for (const Span& span : ranks.begin()->second)
      if (span.name == "optimizer") ends.push_back(span.end);
  if (ends.size() < 2) return nullptr;
  std::ranges::sort(ends);
  std::vector<std::size_t> steps(ends.size() - 1);  // by the index of their end
  std::iota(steps.begin(), steps.end(), std::size_t{1});
  const auto length = [&](std::size_t step) { return ends[step] - ends[step - 1]; };
  std::ranges::stable_sort(steps, [&](std::size_t a, std::size_t b) { return length(a) < length(b); });
  const std::size_t chosen = steps[steps.size() / 2];
  const double begin = ends[chosen - 1], end = ends[chosen];
  Json timeline{{"step", chosen + 1}, {"ms", end - begin}, {"ranks", Json::array()}};
  for (const auto& [rank, spans] : ranks) {
    Json list = Json::array();
    for (const Span& span : spans) {
      const double from = std::max(span.begin, begin), to = std::min(span.end, end);
      if (from >= to) continue;
      list.push_back({{"row", span.name.starts_with("bucket") ? 1 : 0},
                      {"name", span.name},
                      {"begin", from - begin},
                      {"length", to - from}});
    }
    timeline["ranks"].push_back({{"name", "rank " + std::to_string(rank)}, {"spans", list}});
  }
  return timeline;
}

Json page_data(const RunRecord& run) {
  std::size_t starts = 0;
  Json start = *run.last("start"), search;
  for (const Json& event : run.events) {
    if (event["event"] != "start") continue;
    ++starts;
    if (event.contains("lr_search")) search = event["lr_search"];
  }
  if (!start.value("config", Json()).is_object()) start["config"] = Json::object();
  if (number(start, "steps_per_epoch").value_or(0) < 1) start["steps_per_epoch"] = 1;
  const Json* const result = run.last("result");
  Json evaluation = run.evaluation;
  if (!run.mistakes_png.empty())
    evaluation["mistakes_image"] = "data:image/png;base64," + to_base64(run.mistakes_png);
  return {{"name", run.name},
          {"group", run.group},
          {"directory", run.directory.string()},
          {"state", state_of(run)},
          {"begun", run.events.front().value("time", Json())},
          {"resumed", starts - 1},
          {"start", std::move(start)},
          {"lr_search", std::move(search)},
          {"curves", curves(run)},
          {"epochs", accuracies(run, "epoch")},
          {"evaluations", accuracies(run, "eval")},
          {"result", result == nullptr ? Json() : *result},
          {"evaluation", std::move(evaluation)},
          {"samples_image",
           run.samples_png.empty() ? Json() : Json("data:image/png;base64," + to_base64(run.samples_png))},
          {"timeline", run.trace.is_null() ? Json() : timeline_of(run.trace)},
          {"messages", messages(run)}};
}

std::string make_page(const std::vector<RunRecord>& runs, int reload_seconds) {
  Json data{{"version", kVersion},
            {"generated", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)))},
            {"reload_seconds", reload_seconds},
            {"runs", Json::array()}};
  for (const RunRecord& run : runs) data["runs"].push_back(page_data(run));
  const std::pair<std::string_view, std::string> parts[] = {{"@STYLE@", page_files::kStyle},
                                                            {"@D3_LICENSE@", page_files::kD3License},
                                                            {"@D3@", page_files::kD3},
                                                            {"@DATA@", to_script_text(data)},
                                                            {"@SCRIPT@", page_files::kScript}};
  std::string page;
  std::string_view rest = page_files::kPage;
  for (const auto& [name, text] : parts) {  // in the order of the page
    const std::size_t place = rest.find(name);
    page.append(rest.substr(0, place)).append(text);
    rest.remove_prefix(place + name.size());
  }
  return page.append(rest);
}

}  // namespace convoy::report
