#include "convoy/comm/cluster/control/rank_status.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "convoy/comm/core/collective.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"

namespace convoy::dist {
namespace {

using Json = nlohmann::json;
using Life = RankStatus::Life;

constexpr std::size_t kMaxDescribed = 4;  // ranks with what they do, in one message
constexpr std::size_t kMaxListed = 16;    // ranks by number, in one message
constexpr double kSilentSeconds = 5;      // without a sign of life, after which it is the news
constexpr const char* kLives[] = {"running", "stopped", "traced", "dead", "lost", "left"};

std::string format_seconds(double seconds) {
  return seconds < 10 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string name_and_host(const RankStatus& rank) {
  return fmt::format("rank {} on {}", rank.rank, rank.host);
}

std::string step_of(const RankStatus& rank) {
  return rank.step > 0 ? fmt::format(" (step {})", rank.step) : "";
}

/// Returns what a rank does, after its name: "has been in the data loader for 31 s (step 17)".
std::string activity_of(const RankStatus& rank) {
  const std::string last = fmt::format("it was {}{}", to_string(rank.phase), step_of(rank));
  switch (rank.life) {
    case Life::left: return "has finished";
    case Life::dead:
      if (rank.signal != 0)
        return fmt::format("was killed by signal {} ({}); {}", rank.signal, strsignal(rank.signal), last);
      return fmt::format("(process {}) has died; {}", rank.process, last);
    case Life::lost: return fmt::format("is lost, since the connection to its host has closed; {}", last);
    case Life::stopped: return fmt::format("is stopped by a signal (process {}); {}", rank.process, last);
    case Life::traced: return fmt::format("is stopped by a debugger (process {}); {}", rank.process, last);
    case Life::running: break;
  }
  if (rank.beat_seconds >= kSilentSeconds)
    return fmt::format("has not answered for {}; {}", format_seconds(rank.beat_seconds), last);
  if (!rank.collectives.empty())
    return fmt::format("has been in {} for {}{}", rank.collectives.front().text,
                       format_seconds(rank.collectives.front().seconds), step_of(rank));
  return fmt::format("has been {} for {}{}", to_string(rank.phase), format_seconds(rank.phase_seconds),
                     step_of(rank));
}

std::string list_of(const std::vector<const RankStatus*>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < kMaxDescribed; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : "; ", describe(*ranks[i]));
  if (ranks.size() > kMaxDescribed) text += fmt::format("; {} more", ranks.size() - kMaxDescribed);
  return text;
}

/// The ranks that are in the same collective.
struct Waiting {
  RankStatus::Collective collective;
  std::vector<int> ranks;
};

/// Returns the collective in which most ranks wait; nullopt if no rank is in a collective.
std::optional<Waiting> largest_group(std::span<const RankStatus> ranks) {
  std::map<std::pair<std::string, std::uint64_t>, Waiting> groups;
  for (const RankStatus& rank : ranks)
    for (const RankStatus::Collective& collective : rank.collectives) {
      if (rank.life != Life::running) continue;
      Waiting& group = groups[{collective.communicator, collective.number}];
      group.collective = collective;
      group.ranks.push_back(rank.rank);
    }
  const Waiting* largest = nullptr;
  for (const auto& [key, group] : groups)
    if (largest == nullptr || group.ranks.size() > largest->ranks.size()) largest = &group;
  return largest == nullptr ? std::nullopt : std::optional(*largest);
}

/// Returns whether the collective cannot complete before this rank has entered it.
bool holds_up(const RankStatus& rank, const Waiting& waiting) {
  if (rank.life == Life::left) return false;
  if (std::find(waiting.ranks.begin(), waiting.ranks.end(), rank.rank) != waiting.ranks.end()) return false;
  for (const RankStatus::Progress& progress : rank.progress)
    if (progress.communicator == waiting.collective.communicator)
      return progress.completed <= waiting.collective.number;
  return true;
}

}  // namespace

std::string describe(const RankStatus& rank) {
  return fmt::format("{} {}", name_and_host(rank), activity_of(rank));
}

std::string describe_stall(std::span<const RankStatus> ranks) {
  const std::optional<Waiting> waiting = largest_group(ranks);
  if (!waiting) {
    std::vector<const RankStatus*> all;
    for (const RankStatus& rank : ranks)
      if (rank.life != Life::left) all.push_back(&rank);
    return list_of(all);
  }
  std::vector<const RankStatus*> late;
  for (const RankStatus& rank : ranks)
    if (holds_up(rank, *waiting)) late.push_back(&rank);
  const RankStatus::Collective& collective = waiting->collective;
  const std::string where = collective.communicator.empty()
                                ? collective.text
                                : fmt::format("{} ({})", collective.text, collective.communicator);
  if (late.empty()) {
    std::vector<const RankStatus*> silent;
    for (const RankStatus& rank : ranks)
      if (rank.life == Life::running && !rank.is_responsive()) silent.push_back(&rank);
    return fmt::format("all ranks have been in {} for {}: {}", where, format_seconds(collective.seconds),
                       silent.empty() ? "the connections between them do not deliver it" : list_of(silent));
  }
  return fmt::format("{} {} in {}: {}",
                     waiting->ranks.size() > kMaxListed ? fmt::format("{} ranks", waiting->ranks.size())
                                                        : format_ranks(waiting->ranks),
                     waiting->ranks.size() == 1 ? "waits" : "wait", where, list_of(late));
}

std::optional<FirstCause> first_cause(std::span<const RankStatus> ranks) {
  const RankStatus* first = nullptr;
  const auto order_of = [](const RankStatus& rank) {
    // A death has no time of its own. It causes the failures of the peers, and may itself follow an error.
    const bool failed = !rank.failure.empty();
    return std::tuple(failed && rank.failed_by_peer, !failed, -rank.failed_seconds);
  };
  for (const RankStatus& rank : ranks) {
    if (rank.failure.empty() && rank.life != Life::dead && rank.life != Life::lost) continue;
    if (first == nullptr || order_of(rank) < order_of(*first)) first = &rank;
  }
  if (first == nullptr) return std::nullopt;
  if (first->failure.empty()) return FirstCause{describe(*first), false};
  if (first->failed_by_peer) return FirstCause{describe_stall(ranks), true};
  return FirstCause{
      fmt::format("rank {}: {} (on {}; it was {}{})", first->rank, first->failure, first->host,
                  to_string(first->phase), first->step > 0 ? fmt::format(", step {}", first->step) : ""),
      false};
}

void to_json(Json& json, const RankStatus& rank) {
  Json collectives = Json::array(), progress = Json::array();
  for (const RankStatus::Collective& c : rank.collectives)
    collectives.push_back(
        {{"communicator", c.communicator}, {"number", c.number}, {"text", c.text}, {"seconds", c.seconds}});
  for (const RankStatus::Progress& p : rank.progress)
    progress.push_back(
        {{"communicator", p.communicator}, {"launched", p.launched}, {"completed", p.completed}});
  json = {{"rank", rank.rank},
          {"host", rank.host},
          {"process", rank.process},
          {"life", kLives[static_cast<std::size_t>(rank.life)]},
          {"signal", rank.signal},
          {"phase", phase_name(rank.phase)},
          {"step", rank.step},
          {"phase_seconds", rank.phase_seconds},
          {"progress_seconds", rank.progress_seconds},
          {"beat_seconds", rank.beat_seconds},
          {"collectives", collectives},
          {"progress", progress},
          {"stop_points", rank.stop_points},
          {"stop_code", rank.stop_code},
          {"failure", rank.failure},
          {"failed_seconds", rank.failed_seconds},
          {"failed_by_peer", rank.failed_by_peer}};
}

RankStatus status_of(const Json& json) {
  try {
    RankStatus rank{.rank = JsonInteger(json.at("rank")),
                    .host = json.at("host"),
                    .process = JsonInteger(json.at("process")),
                    .signal = JsonInteger(json.at("signal")),
                    .step = JsonInteger(json.at("step")),
                    .phase_seconds = json.at("phase_seconds"),
                    .progress_seconds = json.at("progress_seconds"),
                    .beat_seconds = json.at("beat_seconds"),
                    .stop_points = JsonInteger(json.at("stop_points")),
                    .stop_code = JsonInteger(json.at("stop_code")),
                    .failure = json.at("failure"),
                    .failed_seconds = json.at("failed_seconds"),
                    .failed_by_peer = json.at("failed_by_peer")};
    const auto life = std::find(std::begin(kLives), std::end(kLives), json.at("life").get<std::string>());
    const std::optional<Phase> phase = find_phase(json.at("phase").get<std::string>());
    if (life == std::end(kLives) || !phase) fail<DataError>("unknown life or phase");
    rank.life = static_cast<Life>(life - std::begin(kLives));
    rank.phase = *phase;
    for (const Json& c : json.at("collectives"))
      rank.collectives.push_back(
          {c.at("communicator"), JsonInteger(c.at("number")), c.at("text"), c.at("seconds")});
    for (const Json& p : json.at("progress"))
      rank.progress.push_back(
          {p.at("communicator"), JsonInteger(p.at("launched")), JsonInteger(p.at("completed"))});
    return rank;
  } catch (const std::exception& error) {
    fail<DataError>("status of a rank: {}", error.what());
  }
}

}  // namespace convoy::dist
