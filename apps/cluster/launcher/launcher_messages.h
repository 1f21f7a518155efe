// The messages between convoy-launch, its agent on each host, and the ranks: a line of JSON each.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "convoy/kernels/base/json_text.h"

namespace convoy::launcher {

/// A rank of a group on one host.
struct RankPlace {
  int id = 0;  // of the process; its rank when it was started
  int rank = 0;
  int local_rank = 0;
  int local_world_size = 1;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankPlace, id, rank, local_rank, local_world_size)

/// The ranks that form a group, as one host sees it.
struct Group {
  std::vector<RankPlace> ranks;  // of this host
  int world_size = 1;
  std::string address;  // of rank 0
  int port = 0;
  std::string job;     // a name that no other group has
  double seconds = 0;  // for the ranks to find each other, if they run already
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Group, ranks, world_size, address, port, job, seconds)

/// Returns the environment variables that tell a rank its place in a group.
inline std::map<std::string, std::string> variables_of(const Group& group, const RankPlace& place) {
  return {{"RANK", std::to_string(place.rank)},
          {"WORLD_SIZE", std::to_string(group.world_size)},
          {"LOCAL_RANK", std::to_string(place.local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(place.local_world_size)},
          {"MASTER_ADDR", group.address},
          {"MASTER_PORT", std::to_string(group.port)},
          {"CONVOY_JOB", group.job}};
}

/// To an agent: what to start.
struct Start {
  std::vector<std::string> command;
  std::string directory;
  std::map<std::string, std::string> environment;  // added to the agent's own
  Group group;
  double grace_seconds = 30;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Start, command, directory, environment, group, grace_seconds)

/// From an agent: a line that a rank has printed.
struct Output {
  int id = 0;
  bool is_error = false;
  std::string text;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Output, id, is_error, text)

/// How far a rank has come. A rank and its agent share the memory of one, so that the agent knows it however the rank
/// ends. Access is by std::atomic_ref.
struct Progress {
  std::int64_t step = -1;   // number of completed training steps; -1: the training has not begun
  std::int64_t saved = -1;  // step of the newest checkpoint that the rank has completed; -1: none
};

/// From an agent: how a rank has ended, and its Progress.
struct Exit {
  int id = 0;
  int code = 0;
  int signal = 0;
  std::int64_t step = -1;
  std::int64_t saved = -1;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Exit, id, code, signal, step, saved)

/// From an agent: a rank that waits for a new group, because a peer has failed.
struct Regroup {
  int id = 0;
  std::int64_t step = 0;    // number of steps that the rank has completed
  std::int64_t saved = -1;  // Progress::saved
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Regroup, id, step, saved)

/// The variable with the descriptor of a rank's connection to its agent.
inline constexpr const char* kLinkVariable = "CONVOY_LAUNCH_FD";
/// The variable with the descriptor of the memory of a rank's Progress.
inline constexpr const char* kProgressVariable = "CONVOY_PROGRESS_FD";
/// The variable with the number of restarts so far.
inline constexpr const char* kRestartsVariable = "CONVOY_RESTARTS";
/// The variable that is 1 if ranks may continue in a new group after a peer has failed.
inline constexpr const char* kRegroupVariable = "CONVOY_REGROUP";

/// The kinds of messages, with the type of the content.
namespace kind {
inline constexpr const char* kReady = "ready";    // from an agent, at first or if asked: int, a free port
inline constexpr const char* kBeat = "beat";      // from an agent, each second: int64, Progress::saved
inline constexpr const char* kDrain = "drain";    // from an agent that has received a stop signal
inline constexpr const char* kStart = "start";    // to an agent: Start
inline constexpr const char* kOutput = "output";  // from an agent: Output
inline constexpr const char* kExit = "exit";      // from an agent: Exit
inline constexpr const char* kSignal = "signal";  // to an agent: int, to send to all ranks
inline constexpr const char* kRegroup =
    "regroup";  // from a rank whose peer has failed; from an agent: int, its id
inline constexpr const char* kFindPort = "find-port";  // to an agent; the answer is kReady
inline constexpr const char* kGroup = "group";    // to an agent: Group, for the ranks that wait; to a rank
inline constexpr const char* kEnd = "end";        // to an agent and its ranks: no group follows
inline constexpr const char* kFinish = "finish";  // to an agent: a rank has ended with success
inline constexpr const char* kKill = "kill";      // to an agent: vector<int>, the processes to kill
}  // namespace kind

/// A message of either direction.
struct Message {
  std::string kind;
  nlohmann::json content;
};

/// Replaces each string of `json`, at any depth, by change(string).
template <class F>
void for_each_string(nlohmann::json& json, const F& change) {
  if (json.is_string()) json = change(json.get_ref<const std::string&>());
  if (json.is_structured())
    for (nlohmann::json& each : json) for_each_string(each, change);
}

/// Formats a message as one line. Strings are percent-encoded, since a command, a directory or a line of output may have
/// bytes that are not UTF-8.
inline std::string to_line(const char* kind, nlohmann::json content = nullptr) {
  for_each_string(content, percent_encoded);
  return json_text(nlohmann::json{{"kind", kind}, {"content", std::move(content)}});
}
/// Parses a line. Returns a message without a kind if it is not one, such as a greeting of a shell.
inline Message parse_message(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string()) return {};
  nlohmann::json content = json.value("content", nlohmann::json());
  for_each_string(content, [](const std::string& text) { return percent_decoded(text).value_or(text); });
  return {.kind = json["kind"], .content = std::move(content)};
}

/// Runs the agent: reads messages from standard input, and writes messages to standard output. Returns 0 after all ranks
/// have ended and the launcher has closed the input. If the input is closed earlier, asks the ranks to stop by SIGTERM, and kills those that
/// remain after the grace period.
int run_host_agent();

}  // namespace convoy::launcher
