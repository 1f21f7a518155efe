#include "comm/meeting_plan.h"

#include <fmt/ranges.h>

#include <charconv>

#include "kernels/runtime/check.h"

namespace convoy {
namespace {

/// One of several, as a launcher says; where they meet is filled in by others.
MeetingPlan plan_for(const Launch& launch, MeetingPlan::How how, const std::string& source,
                     const std::string& where) {
  MeetingPlan plan{.how = how,
                   .rank = launch.rank,
                   .world = launch.world,
                   .job = launch.job,
                   .local_rank = launch.local_rank,
                   .source = source};
  plan.note = fmt::format("{}{}", launch.source, where);
  if (!launch.others.empty()) plan.note += fmt::format("; {} too", fmt::join(launch.others, ", "));
  return plan;
}

MeetingPlan plan_at_address(const Launch& launch) {
  check(!launch.address.empty() && launch.port != 0,
        "{}: rank {} of {}, but {} is not set: set MASTER_ADDR and MASTER_PORT, or --rendezvous "
        "tcp://HOST:PORT",
        launch.source, launch.rank, launch.world, launch.address.empty() ? "MASTER_ADDR" : "MASTER_PORT");
  const Endpoint endpoint{launch.address, launch.port};
  MeetingPlan plan =
      plan_for(launch, MeetingPlan::How::tcp, "environment", fmt::format(", tcp://{}", endpoint.text()));
  plan.endpoint = endpoint;
  return plan;
}

MeetingPlan plan_by_launcher(const std::optional<Launch>& launch) {
  if (!launch) return {.source = "one process", .note = "one process"};
  if (launch->by_mpi) return plan_for(*launch, MeetingPlan::How::mpi, "mpi", ", MPI");
  if (launch->world == 1) return plan_for(*launch, MeetingPlan::How::alone, "environment", "");
  return plan_at_address(*launch);
}

}  // namespace

std::string Endpoint::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Endpoint parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Endpoint endpoint;
  if (colon != std::string::npos) {
    endpoint.host = text.substr(0, colon);
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, endpoint.port);
    if (error != std::errc() || stop != end) endpoint.port = 0;
  }
  const bool bracketed = endpoint.host.starts_with('[') && endpoint.host.ends_with(']');
  if (bracketed) endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  const bool ambiguous = !bracketed && endpoint.host.find(':') != std::string::npos;
  check(!endpoint.host.empty() && !ambiguous && endpoint.port >= 1 && endpoint.port <= 65535,
        "tcp://{}: expected tcp://HOST:PORT or tcp://[V6]:PORT, with a port from 1 to 65535", text);
  return endpoint;
}

MeetingPlan plan_meeting(const std::string& where, const Variables& variables) {
  if (where == "auto") return plan_by_launcher(launch_from(variables));
  if (where == "env") {
    const std::optional<Launch> launch = launch_from_rank(variables);
    check(
        launch.has_value(),
        "--rendezvous env: RANK and WORLD_SIZE are not set, nor is who else to meet and where (MASTER_ADDR, "
        "MASTER_PORT)");
    return plan_by_launcher(launch);
  }
  const std::optional<Launch> launch = launch_from(variables);
  if (where == "mpi") {
    // Without MPI's own variables (a launcher that needs none): as many as MPI says.
    if (launch && launch->by_mpi) return plan_for(*launch, MeetingPlan::How::mpi, "mpi", ", MPI");
    return {.how = MeetingPlan::How::mpi, .world = 0, .source = "mpi", .note = "--rendezvous mpi"};
  }
  const bool tcp = where.starts_with("tcp://"), file = where.starts_with("file://");
  check(tcp || file, "--rendezvous {}: found '{}', expected auto, mpi, tcp://HOST:PORT, file:///PATH or env",
        where, where);
  const std::string place = where.substr(where.find("//") + 2);
  const Endpoint endpoint = tcp ? parse_endpoint(place) : Endpoint();
  check(tcp || place.starts_with('/'), "--rendezvous {}: expected file:// and a path from the root", where);
  check(launch.has_value(),
        "--rendezvous {}: which of how many processes is this one? Set RANK and WORLD_SIZE", where);
  MeetingPlan plan = plan_for(*launch, tcp ? MeetingPlan::How::tcp : MeetingPlan::How::file,
                              tcp ? "tcp" : "file", fmt::format(", {}", where));
  plan.endpoint = endpoint;
  if (file) plan.path = place;
  return plan;
}

}  // namespace convoy
