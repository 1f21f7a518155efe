// Where and as whom to meet: what a flag and the environment say, before anything is opened.
#pragma once

#include <optional>
#include <string>

#include "comm/environment.h"

namespace convoy {

/// A place of a network: "10.0.0.1:29500", "[fe80::1]:29500".
struct Endpoint {
  std::string host;
  int port = 0;

  std::string text() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// "HOST:PORT", "[V6]:PORT". UsageError for anything else.
Endpoint parse_endpoint(const std::string& text);

struct MeetingPlan {
  enum class How { alone, mpi, tcp, file };
  How how = How::alone;
  int rank = 0;   // through MPI: as the variables say, if they do
  int world = 1;  // 0: nobody says; MPI will
  Endpoint endpoint;
  std::string path;
  std::string job;
  std::optional<int> local_rank;  // as the launcher counts
  std::string source;             // of RankInfo
  std::string note;
};

/// UsageError for a place that is none, and for a meeting of nobody knows whom.
MeetingPlan plan_meeting(const std::string& where, const Variables& variables);

}  // namespace convoy
