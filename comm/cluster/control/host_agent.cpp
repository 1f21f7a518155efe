#include "convoy/comm/cluster/control/host_agent.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "convoy/comm/core/collective.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"

namespace convoy::dist {

CONVOY_DEFINE_JSON(AgentWarning, rank, text)
CONVOY_DEFINE_JSON(AgentReport, knows_of_stop, ranks, warnings, paces)
CONVOY_DEFINE_JSON(AgentOrders, stop_requested, stop_point, stop_code, details, deadline_seconds, verdict)

namespace {

using Json = nlohmann::json;
using Life = RankStatus::Life;

constexpr std::chrono::milliseconds kMessagePeriod{500};        // without urgent news
constexpr std::chrono::milliseconds kMessageWait{10};           // for messages of other hosts
constexpr std::chrono::milliseconds kWaitForSameWarning{1000};  // of other ranks
// The cause of an error may be known later than its consequences: it comes from another host.
constexpr std::chrono::milliseconds kWaitForCause{300};
// Longer than a report of a rank takes to the root of 16,000 hosts, and shorter than RankStatus::kResponsiveSeconds.
constexpr double kQuietSeconds = 1.7;

double seconds_of(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Adds the time that a status was on its way.
RankStatus aged(RankStatus status, double seconds) {
  for (double* age : {&status.phase_seconds, &status.progress_seconds, &status.beat_seconds,
                      &status.io_seconds, &status.failed_seconds})
    *age += seconds;
  for (RankStatus::Collective& collective : status.collectives) collective.seconds += seconds;
  return status;
}

std::string packed(const Json& json) {
  std::string bytes;
  Json::to_msgpack(json, bytes);
  return bytes;
}

/// Reads numbers, each with a space behind it. Returns false if they do not begin at `next` or end before `end`.
template <std::size_t N>
bool read_numbers(const char*& next, const char* end, std::array<std::int64_t, N>& numbers) {
  for (std::int64_t& number : numbers) {
    const auto [behind, error] = std::from_chars(next, end, number);
    if (error != std::errc() || behind == end) return false;
    next = behind + 1;
  }
  return true;
}

/// Returns what other hosts should learn at once.
std::string urgent_part(const std::vector<RankStatus>& ranks) {
  std::string text;
  for (const RankStatus& rank : ranks)
    if (rank.stop_code != 0 || !rank.failure.empty() || rank.life == Life::dead || rank.life == Life::lost)
      text += fmt::format("{} {} {} {};", rank.rank, rank.stop_code, rank.failure.size(),
                          static_cast<int>(rank.life));
  return text;
}

}  // namespace

HostAgent::HostAgent(const HostMemory& memory, const std::vector<RankInfo>& all,
                     std::unique_ptr<AgentTree> tree, Options options)
    : memory_(memory),
      all_(all),
      tree_(std::move(tree)),
      options_(std::move(options)),
      next_warning_(options_.warn_after_seconds),
      quiet_seconds_(std::min(kQuietSeconds, options_.warn_after_seconds / 2)),
      taken_(static_cast<std::size_t>(memory.ranks())) {
  if (tree_ == nullptr) return;
  has_parent_ = !tree_->is_root();
  parent_heard_ = Clock::now();
  for (const int node : tree_->children()) {
    children_[node].received = Clock::now();
    for (const RankInfo& info : all_)  // until it reports
      if (info.node == node) children_[node].report.ranks.push_back({.rank = info.rank, .host = info.host});
  }
}

bool HostAgent::is_active() const {
  const std::int64_t now = steady_nanoseconds();
  for (int index = 0; index < memory_.index(); ++index) {
    const RankSlot& slot = memory_.slot(index);
    const double silent = static_cast<double>(now - slot.beat.load()) * 1e-9;
    if (slot.state.load() != RankSlot::State::left && memory_.is_alive(index) &&
        silent < RankStatus::kResponsiveSeconds)
      return false;
  }
  return true;
}

void HostAgent::serve() {
  if (!is_active()) return;
  const bool has_messages = tree_ && receive();
  const std::uint32_t changes = memory_.host().changes.load();
  const bool is_due = Clock::now() >= observe_at_ || std::exchange(seen_changes_, changes) != changes;
  if (tree_ && !has_messages && !is_due) return;
  observe_at_ = Clock::now() + kPeriod;
  // Read before the ranks are: those that did not see the request then have passed no later stop point.
  bool know_of_stop = memory_.host().stop_requested.load() != 0;
  take_warnings();
  std::vector<RankStatus> local = memory_.observe(all_);
  observe_suspension();
  for (RankStatus& rank : local)  // may have been suspended as well, until about the same time
    for (double* age : {&rank.progress_seconds, &rank.beat_seconds, &rank.io_seconds})
      *age = without_pauses(*age);
  take_paces(local);
  for (const auto& [node, child] : children_) {
    know_of_stop = know_of_stop && (child.report.knows_of_stop || child.has_left);
    if (!child.has_left && seconds_of(now_ - child.received) >= options_.host_timeout_seconds)
      receive_from_child({.node = node, .kind = AgentTree::Message::Kind::lost, .text = ""});
  }
  const std::vector<RankStatus> ranks = all_known(std::move(local));
  if (has_parent_) {
    decide_without_parent(ranks);
    return send_up(ranks, know_of_stop);
  }
  decide(ranks, know_of_stop);
  report_warnings(kWaitForSameWarning);
  if (tree_) send_down();
}

void HostAgent::observe_suspension() {
  constexpr std::size_t kPauses = 16;
  now_ = Clock::now();  // before: what follows must not count a suspension that is not observed
  const Clock::duration all = Suspension::total(), pause = all - std::exchange(suspended_, all);
  if (pause == Clock::duration::zero()) return;
  pauses_.emplace_back(Clock::now(), seconds_of(pause));
  if (pauses_.size() > kPauses) pauses_.pop_front();
  parent_heard_ = std::min(parent_heard_ + pause, Clock::now());
  for (auto& [node, child] : children_) child.received = std::min(child.received + pause, Clock::now());
}

double HostAgent::without_pauses(double age) const {
  double running = age;
  for (const auto& [end, seconds] : pauses_)
    if (seconds_of(Clock::now() - end) < age) running -= seconds;
  return std::max(running, 0.0);
}

void HostAgent::take_warnings() {
  for (int index = 0; index < memory_.ranks(); ++index) {
    RankSlot& slot = memory_.slot(index);
    for (std::uint32_t next = slot.warnings_taken.load(); next < RankSlot::kWarnings; ++next) {
      const std::string text = slot.warnings[next].get();
      if (text.empty()) break;
      slot.warnings_taken = next + 1;
      warnings_.push_back({.rank = memory_.rank_at(index), .text = text, .since = Clock::now()});
    }
  }
}

void HostAgent::take_paces(const std::vector<RankStatus>& local) {
  for (std::size_t index = 0; index < local.size(); ++index) {
    const RankStatus& rank = local[index];
    if (rank.pace.block <= std::exchange(taken_[index], rank.pace.block)) continue;
    std::vector<double> seconds = rank.pace.own_seconds;
    seconds.resize(kStepPhases);
    paces_ +=
        fmt::format("{} {} {} {:.0f} ", rank.rank, rank.step, rank.pace.block, 1e6 * rank.pace.step_seconds);
    for (const double each : seconds) paces_ += fmt::format("{:.0f} ", 1e6 * each);
  }
}

/// A warning about the whole job comes from all ranks at about the same time, and rank 0 prints its own warnings.
void HostAgent::report_warnings(std::chrono::milliseconds after) {
  for (const AgentWarning& warning : warnings_)
    if (warning.rank == 0) known_warnings_.insert(warning.text);
  const Clock::time_point due = Clock::now() - after;
  std::map<std::string, std::vector<int>> ranks_of_text;
  for (const AgentWarning& warning : warnings_)
    if (warning.since <= due) ranks_of_text[warning.text];
  for (const AgentWarning& warning : warnings_)
    if (ranks_of_text.contains(warning.text)) ranks_of_text[warning.text].push_back(warning.rank);
  std::erase_if(warnings_, [&](const AgentWarning& warning) { return ranks_of_text.contains(warning.text); });
  for (auto& [text, ranks] : ranks_of_text) {
    if (!known_warnings_.insert(text).second) continue;
    std::sort(ranks.begin(), ranks.end());
    if (options_.on_warning) options_.on_warning(fmt::format("{}: {}", format_ranks(ranks), text));
  }
}

bool HostAgent::receive() {
  const std::vector<AgentTree::Message> messages = tree_->poll(kMessageWait);
  if (!messages.empty()) forgive_own_silence();
  for (const AgentTree::Message& message : messages) {
    try {
      if (children_.contains(message.node))
        receive_from_child(message);
      else
        receive_from_parent(message);
    } catch (const std::exception&) {  // not of an agent of this version; the sender counts as silent
    }
  }
  return !messages.empty();
}

void HostAgent::forgive_own_silence() {
  const auto hosts = std::ranges::count_if(children_, [](const auto& each) { return !each.second.has_left; });
  Clock::time_point heard{};
  for (const auto& [node, child] : children_) heard = std::max(heard, child.received);
  const Clock::duration silence = Clock::now() - heard;
  if (has_parent_ || hosts < 2 || silence < 2 * kMessagePeriod) return;
  for (auto& [node, child] : children_) child.received = std::min(child.received + silence, Clock::now());
}

void HostAgent::receive_from_child(const AgentTree::Message& message) {
  Child& child = children_.at(message.node);
  if (message.kind == AgentTree::Message::Kind::text) {
    AgentReport report = Json::from_msgpack(message.text).get<AgentReport>();
    const auto check_ranks = [&](int first, int last) {
      if (first < 0 || last < first || static_cast<std::size_t>(last) >= all_.size())
        fail<DataError>("found ranks {} to {}, expected some below {}", first, last, all_.size());
    };
    for (const RankStatus& status : report.ranks) {
      check_ranks(status.rank, status.rank);
      for (const auto& [first, last] : status.others) check_ranks(first, last);
    }
    paces_ += report.paces;
    for (AgentWarning& warning : report.warnings) {
      warning.since = Clock::now();
      warnings_.push_back(std::move(warning));
    }
    child.report = std::move(report);
    child.received = Clock::now();
    return;
  }
  child.has_left = message.kind == AgentTree::Message::Kind::left;
  // Of the ranks below a lost agent, only its own has surely died: the others are just not heard of any more.
  for (RankStatus& rank : child.report.ranks) {
    const RankInfo& info = all_[static_cast<std::size_t>(rank.rank)];
    const bool is_agent = info.node == message.node && info.local_rank == 0;
    if (rank.life == Life::dead) continue;
    if (child.has_left) rank.life = Life::left;
    if (!child.has_left && is_agent) rank.life = Life::lost;
  }
}

void HostAgent::receive_from_parent(const AgentTree::Message& message) {
  if (message.kind != AgentTree::Message::Kind::text) return lose_parent(message);
  parent_heard_ = Clock::now();
  apply(Json::from_msgpack(message.text).get<AgentOrders>());
  send_down();
}

void HostAgent::lose_parent(const AgentTree::Message& message) {
  has_parent_ = false;
  if (message.kind == AgentTree::Message::Kind::left || !orders_.verdict.empty()) return;
  orders_.verdict = fmt::format("{} is lost, since the connection to its host has closed", parent_text());
  apply(orders_);
}

void HostAgent::decide_without_parent(const std::vector<RankStatus>& ranks) {
  const double silent = seconds_of(now_ - parent_heard_);
  if (silent < RankStatus::kResponsiveSeconds || !orders_.verdict.empty()) return;
  const std::optional<FirstCause> cause = first_cause(ranks);
  if (!cause && silent < options_.host_timeout_seconds) return;
  orders_.verdict = !cause || cause->is_consequence
                        ? fmt::format("{} has not answered for {:.1f} s", parent_text(), silent)
                        : cause->text;
  apply(orders_);
}

std::string HostAgent::parent_text() const {
  const auto parent = std::find_if(all_.begin(), all_.end(), [&](const RankInfo& info) {
    return info.node == tree_->parent() && info.local_rank == 0;
  });
  return fmt::format("rank {} on {}", parent->rank, parent->host);
}

std::vector<RankStatus> HostAgent::all_known(std::vector<RankStatus> ranks) const {
  for (const auto& [node, child] : children_) {
    const double age = seconds_of(now_ - child.received);
    for (const RankStatus& rank : child.report.ranks) ranks.push_back(aged(rank, age));
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const RankStatus& a, const RankStatus& b) { return a.rank < b.rank; });
  return ranks;
}

void HostAgent::decide(const std::vector<RankStatus>& ranks, bool know_of_stop) {
  orders_.details =
      !std::ranges::all_of(ranks, [&](const RankStatus& rank) { return is_quiet(rank, quiet_seconds_); });
  decide_stop(ranks, know_of_stop);
  decide_verdict(ranks);
  extend_deadlines(ranks);
  warn_of_stall(ranks);
  warn_of_stragglers();
  apply(orders_);
}

/// All ranks stop at the same stop point. A rank publishes that it passes a point, and then looks for a stop
/// request. So once the request is visible to a rank and its points are read afterwards, it passes at most one
/// more point than that without having seen the request, and waits there for the decision.
void HostAgent::decide_stop(const std::vector<RankStatus>& ranks, bool know_of_stop) {
  if (count_ranks(ranks) != all_.size() || orders_.stop_point != 0) return;
  int code = std::numeric_limits<int>::max();
  std::uint64_t passed = 0;
  for (const RankStatus& rank : ranks) {
    if (rank.stop_code != 0) code = std::min(code, rank.stop_code);
    passed = std::max(passed, rank.stop_points);
  }
  if (code == std::numeric_limits<int>::max()) return;
  orders_.stop_requested = true;
  if (!know_of_stop) return;
  orders_.stop_code = code;
  orders_.stop_point = passed + 1;
}

void HostAgent::decide_verdict(const std::vector<RankStatus>& ranks) {
  if (!orders_.verdict.empty()) return;
  std::optional<FirstCause> cause = first_cause(ranks);
  if (const RankStatus* const overdue = cause ? nullptr : overdue_of(ranks)) {
    const std::string stall = describe_stall(expanded(ranks, all_)), culprit = describe(*overdue);
    orders_.verdict = stall.find(culprit) != std::string::npos ? stall : culprit;
  }
  if (!cause) return;
  if (cause->is_consequence) {
    if (consequence_seen_at_ == Clock::time_point{}) consequence_seen_at_ = Clock::now();
    if (Clock::now() - consequence_seen_at_ < kWaitForCause) return;
    // What a host has told before the failure does not show which of its ranks the others wait for. It may be silent.
    for (const auto& [node, child] : children_)
      if (!child.has_left && child.received < consequence_seen_at_ &&
          seconds_of(now_ - child.received) < RankStatus::kResponsiveSeconds)
        return;
  }
  orders_.verdict = cause->is_consequence ? first_cause(expanded(ranks, all_))->text : cause->text;
}

const RankStatus* HostAgent::overdue_of(const std::vector<RankStatus>& ranks) const {
  constexpr double kAfterCollectives = 1;  // which end with their own error at the timeout
  double io_limit =
      options_.io_timeout_seconds > 0 ? options_.io_timeout_seconds : std::numeric_limits<double>::infinity();
  if (orders_.stop_requested) io_limit = std::min(io_limit, options_.timeout_seconds);
  for (const RankStatus& rank : ranks) {
    // Wait::silent, and Wait::storage
    const bool is_silent = (rank.life == Life::stopped || rank.life == Life::running) &&
                           rank.beat_seconds >= options_.timeout_seconds + kAfterCollectives;
    if (is_silent || (rank.limit() == Wait::storage && rank.io_seconds >= io_limit)) return &rank;
  }
  return nullptr;
}

void HostAgent::extend_deadlines(const std::vector<RankStatus>& ranks) {
  double idle_seconds = std::numeric_limits<double>::infinity();
  for (const RankStatus& rank : ranks) {
    idle_seconds = std::min(idle_seconds, rank.progress_seconds);
    if (rank.limit() != Wait::collective) idle_seconds = 0;
  }
  orders_.deadline_seconds = std::max(options_.timeout_seconds - idle_seconds, 0.0);
}

void HostAgent::warn_of_stall(const std::vector<RankStatus>& ranks) {
  double idle_seconds = std::numeric_limits<double>::infinity();
  bool is_held_up = false;
  for (const RankStatus& rank : ranks) {
    if (rank.life == Life::left) continue;
    idle_seconds = std::min(idle_seconds, rank.progress_seconds);
    is_held_up |= !rank.collectives.empty() || rank.life == Life::stopped;
  }
  if (idle_seconds < options_.warn_after_seconds) next_warning_ = options_.warn_after_seconds;
  if (!is_held_up || idle_seconds < next_warning_ || !orders_.verdict.empty()) return;
  while (next_warning_ <= idle_seconds) next_warning_ *= 2;
  if (options_.on_warning)
    options_.on_warning(fmt::format("no rank has made progress for {:.0f} s: {}", idle_seconds,
                                    describe_stall(expanded(ranks, all_))));
}

void HostAgent::warn_of_stragglers() {
  const std::string paces = std::exchange(paces_, {});
  if (paces.empty() || !options_.on_straggler) return;
  paced_.resize(all_.size());
  std::array<std::int64_t, 4 + kStepPhases> numbers{};  // of a rank
  const char* next = paces.data();
  while (read_numbers(next, paces.data() + paces.size(), numbers)) {
    if (numbers[0] < 0 || static_cast<std::size_t>(numbers[0]) >= all_.size()) return;
    const auto index = static_cast<std::size_t>(numbers[0]);
    RankStatus::Pace pace{.block = static_cast<std::uint64_t>(numbers[2]),
                          .step_seconds = 1e-6 * static_cast<double>(numbers[3])};
    for (std::size_t i = 4; i < numbers.size(); ++i)
      pace.own_seconds.push_back(1e-6 * static_cast<double>(numbers[i]));
    paced_[index] = {
        .rank = all_[index].rank, .host = all_[index].host, .step = numbers[1], .pace = std::move(pace)};
  }
  for (const std::string& text : stragglers_.observe(paced_, options_.window_seconds))
    options_.on_straggler(text);
}

void HostAgent::apply(const AgentOrders& orders) {
  orders_ = orders;
  HostSlot& host = memory_.host();
  bool is_news = orders.stop_requested && host.stop_requested.exchange(1) == 0;
  if (orders.stop_point != 0 && host.stop_point.load() == 0) {
    host.stop_code = orders.stop_code;
    std::uint64_t undecided = 0;
    host.stop_point.compare_exchange_strong(undecided, orders.stop_point);
    is_news = true;
  }
  if (!orders.verdict.empty() && memory_.set(kVerdict, orders.verdict)) is_news = true;
  const std::int64_t floor = steady_nanoseconds() + static_cast<std::int64_t>(1e9 * orders.deadline_seconds);
  if (orders.deadline_seconds > 0 && floor > host.deadline_floor.load()) host.deadline_floor = floor;
  if (is_news) memory_.wake();
}

void HostAgent::send_up(const std::vector<RankStatus>& ranks, bool know_of_stop) {
  const std::string urgent =
      urgent_part(ranks) + (know_of_stop ? "stop" : "") + (orders_.details ? "details" : "");
  if ((urgent == sent_up_ && Clock::now() < send_up_at_) || tree_->is_parent_blocked()) return;
  sent_up_ = urgent;
  send_up_at_ = Clock::now() + kMessagePeriod;
  const double quiet_seconds = orders_.details ? 0 : quiet_seconds_;
  tree_->send_up(packed(AgentReport{know_of_stop, grouped(ranks, quiet_seconds, memory_.rank_at(0)),
                                    std::exchange(warnings_, {}), std::exchange(paces_, {})}));
}

void HostAgent::send_down() {
  const std::string urgent = fmt::format("{} {} {} {}", orders_.stop_requested, orders_.stop_point,
                                         orders_.details, orders_.verdict);
  if (urgent == sent_down_ && Clock::now() < send_down_at_) return;
  sent_down_ = urgent;
  send_down_at_ = Clock::now() + kMessagePeriod;
  tree_->send_down(packed(orders_));
}

void HostAgent::leave() {
  if (is_active()) {
    take_warnings();
    if (!has_parent_) report_warnings(std::chrono::milliseconds(0));
  }
  if (tree_) tree_->leave();
}

}  // namespace convoy::dist
