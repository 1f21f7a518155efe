#include "convoy/comm/cluster/control/rank_status.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
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
constexpr double kIdleSeconds = 5;        // without bytes of files, after which it is the news
constexpr const char* kLives[] = {"running", "stopped", "traced", "dead", "lost", "left"};

struct PhaseRow {
  Phase phase;
  std::string_view name, text;
  Wait limit = Wait::collective;
};

constexpr std::array kPhases = {
    PhaseRow{Phase::start, "start", "setting up"},
    PhaseRow{Phase::download, "download", "downloading the data set", Wait::storage},
    PhaseRow{Phase::read, "read", "reading the data set", Wait::storage},
    PhaseRow{Phase::load, "load", "loading a checkpoint", Wait::storage},
    PhaseRow{Phase::data, "data", "in the data loader", Wait::storage},
    PhaseRow{Phase::forward, "forward", "in the forward pass"},
    PhaseRow{Phase::backward, "backward", "in the backward pass"},
    PhaseRow{Phase::gradients, "gradients", "waiting for gradients"},
    PhaseRow{Phase::optimizer, "optimizer", "in the optimizer step"},
    PhaseRow{Phase::replay, "replay", "replaying the CUDA graph of the step"},
    PhaseRow{Phase::between, "between", "between two steps"},
    PhaseRow{Phase::evaluation, "evaluation", "in an evaluation"},
    PhaseRow{Phase::save, "save", "saving a checkpoint", Wait::storage},
    PhaseRow{Phase::finish, "finish", "finishing"},
};

const PhaseRow& row_of(Phase phase) { return kPhases[static_cast<std::size_t>(phase) % kPhases.size()]; }

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < kPhases.size(); ++i)
    if (static_cast<std::size_t>(kPhases[i].phase) != i) return false;
  return true;
}
static_assert(is_in_order());

std::string format_seconds(double seconds) {
  return seconds < 10 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
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
    case Life::lost:
      return rank.beat_seconds >= RankStatus::kResponsiveSeconds
                 ? fmt::format("is lost, since its host has not answered for {}; {}",
                               format_seconds(rank.beat_seconds), last)
                 : fmt::format("is lost, since the connection to its host has closed; {}", last);
    case Life::stopped: return fmt::format("is stopped by a signal (process {}); {}", rank.process, last);
    case Life::traced: return fmt::format("is stopped by a debugger (process {}); {}", rank.process, last);
    case Life::running: break;
  }
  if (rank.beat_seconds >= RankStatus::kResponsiveSeconds)
    return fmt::format("has not answered for {}; {}", format_seconds(rank.beat_seconds), last);
  if (!rank.collectives.empty())
    return fmt::format("has been in {} for {}{}", rank.collectives.front().text,
                       format_seconds(rank.collectives.front().seconds), step_of(rank));
  const bool is_idle = rank.limit() == Wait::storage && rank.io_seconds >= kIdleSeconds;
  return fmt::format(
      "has been {} for {}{}{}", to_string(rank.phase), format_seconds(rank.phase_seconds),
      is_idle ? fmt::format(", and has read or written nothing for {}", format_seconds(rank.io_seconds)) : "",
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

std::string_view phase_name(Phase phase) { return row_of(phase).name; }

std::optional<Phase> find_phase(std::string_view name) {
  for (const PhaseRow& row : kPhases)
    if (row.name == name) return row.phase;
  return std::nullopt;
}

std::string_view to_string(Phase phase) { return row_of(phase).text; }

Wait limit_of(Phase phase) { return row_of(phase).limit; }

std::string describe(const RankStatus& rank) {
  return fmt::format("rank {} on {} {}{}", rank.rank, rank.host, activity_of(rank),
                     rank.stack.empty() ? "" : fmt::format("; its thread: {}", rank.stack));
}

std::string describe_stall(std::span<const RankStatus> ranks) {
  const std::optional<Waiting> waiting = largest_group(ranks);
  std::vector<const RankStatus*> present, silent;
  for (const RankStatus& rank : ranks) {
    if (rank.life == Life::left) continue;
    present.push_back(&rank);
    if (!rank.is_responsive()) silent.push_back(&rank);
  }
  if (!waiting) return list_of(silent.empty() ? present : silent);
  std::vector<const RankStatus*> late;
  for (const RankStatus& rank : ranks)
    if (holds_up(rank, *waiting)) late.push_back(&rank);
  const RankStatus::Collective& collective = waiting->collective;
  const std::string where = collective.communicator.empty()
                                ? collective.text
                                : fmt::format("{} ({})", collective.text, collective.communicator);
  if (late.empty())
    return fmt::format("all ranks have been in {} for {}: {}", where, format_seconds(collective.seconds),
                       silent.empty() ? "the connections between them do not deliver it" : list_of(silent));
  // A rank that waits in another collective is late itself because of one that waits in none.
  const auto waits = [](auto* rank) { return rank->is_responsive() && !rank->collectives.empty(); };
  std::erase_if(late, waits);
  if (late.empty())
    for (const RankStatus& rank : ranks)
      if (rank.life != Life::left && !waits(&rank)) late.push_back(&rank);
  // If a host does not answer, only its first rank, which is its agent, is known to be silent.
  std::set<std::string> silent_hosts;
  std::erase_if(late, [&](auto* rank) {
    return rank->life == Life::running && !rank->is_responsive() && !silent_hosts.insert(rank->host).second;
  });
  // The others may be late because of one that is stopped or gone.
  const auto is_running = [](auto* rank) { return rank->life == Life::running; };
  if (!std::ranges::all_of(late, is_running)) std::erase_if(late, is_running);
  return fmt::format("{} {} in {}: {}",
                     waiting->ranks.size() > kMaxListed ? fmt::format("{} ranks", waiting->ranks.size())
                                                        : format_ranks(waiting->ranks),
                     waiting->ranks.size() == 1 ? "waits" : "wait", where,
                     late.empty() ? "all ranks wait for each other in different collectives" : list_of(late));
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
  if (first->failure.empty()) return FirstCause{describe(*first)};
  if (first->failed_by_peer) return FirstCause{describe_stall(ranks), true};
  return FirstCause{
      fmt::format("rank {}: {} (on {}; it was {}{})", first->rank, first->failure, first->host,
                  to_string(first->phase), first->step > 0 ? fmt::format(", step {}", first->step) : ""),
      false};
}

static void to_json(Json& json, Life life) { json = kLives[static_cast<std::size_t>(life)]; }
static void from_json(const Json& json, Life& life) {
  const auto found = std::find(std::begin(kLives), std::end(kLives), json.get<std::string>());
  if (found == std::end(kLives)) fail<DataError>("unknown life");
  life = static_cast<Life>(found - std::begin(kLives));
}
static void to_json(Json& json, Phase phase) { json = phase_name(phase); }
static void from_json(const Json& json, Phase& phase) {
  const std::optional<Phase> found = find_phase(json.get<std::string>());
  if (!found) fail<DataError>("unknown phase");
  phase = *found;
}
CONVOY_DEFINE_JSON(RankStatus::Collective, communicator, number, text, seconds)
CONVOY_DEFINE_JSON(RankStatus::Progress, communicator, launched, completed)
CONVOY_DEFINE_JSON(RankStatus::Pace, block, step_seconds, own_seconds)
CONVOY_DEFINE_JSON(RankStatus, rank, host, process, life, signal, phase, step, phase_seconds,
                   progress_seconds, beat_seconds, io_seconds, collectives, progress, pace, stop_points,
                   stop_code, stack, failure, failed_seconds, failed_by_peer, others)

}  // namespace convoy::dist
