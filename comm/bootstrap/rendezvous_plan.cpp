#include "comm/bootstrap/rendezvous_plan.h"

#include <fmt/ranges.h>

#include "kernels/base/check.h"

namespace convoy {
namespace {

/// Returns a plan with the ranks of `launch`. The caller adds the endpoint or path.
RendezvousPlan plan_for(const Launch& launch, RendezvousPlan::Method method, const std::string& source,
                        const std::string& where) {
  RendezvousPlan plan{.method = method,
                      .rank = launch.rank,
                      .world_size = launch.world_size,
                      .job = launch.job,
                      .local_rank = launch.local_rank,
                      .source = source};
  plan.note = fmt::format("{}{}", launch.source, where);
  if (!launch.others.empty()) plan.note += fmt::format("; {} too", fmt::join(launch.others, ", "));
  return plan;
}

RendezvousPlan plan_at_address(const Launch& launch) {
  check(!launch.address.empty() && launch.port != 0,
        "{}: found rank {} of {}, but {} is not set; set MASTER_ADDR and MASTER_PORT, or use a rendezvous "
        "at tcp://HOST:PORT",
        launch.source, launch.rank, launch.world_size,
        launch.address.empty() ? "MASTER_ADDR" : "MASTER_PORT");
  const Endpoint endpoint{launch.address, launch.port};
  RendezvousPlan plan = plan_for(launch, RendezvousPlan::Method::tcp, "environment",
                                 fmt::format(", tcp://{}", endpoint.text()));
  plan.endpoint = endpoint;
  return plan;
}

RendezvousPlan plan_by_launcher(const std::optional<Launch>& launch) {
  if (!launch) return {.source = "one process", .note = "one process"};
  if (launch->by_mpi) return plan_for(*launch, RendezvousPlan::Method::mpi, "mpi", ", MPI");
  if (launch->world_size == 1)
    return plan_for(*launch, RendezvousPlan::Method::single_process, "environment", "");
  return plan_at_address(*launch);
}

}  // namespace

RendezvousPlan plan_rendezvous(const std::string& where, const Variables& variables) {
  if (where == "auto") return plan_by_launcher(launch_from(variables));
  if (where == "env") {
    const std::optional<Launch> launch = launch_from_rank(variables);
    check(
        launch.has_value(),
        "RendezvousOptions::where: found env, but RANK and WORLD_SIZE are not set; set them, and MASTER_ADDR and MASTER_PORT");
    return plan_by_launcher(launch);
  }
  const std::optional<Launch> launch = launch_from(variables);
  if (where == "mpi") {
    // Some launchers set no MPI variables; MPI then provides the world size.
    if (launch && launch->by_mpi) return plan_for(*launch, RendezvousPlan::Method::mpi, "mpi", ", MPI");
    return {
        .method = RendezvousPlan::Method::mpi, .world_size = 0, .source = "mpi", .note = "rendezvous by MPI"};
  }
  const bool tcp = where.starts_with("tcp://"), file = where.starts_with("file://");
  check(tcp || file,
        "RendezvousOptions::where: found '{}', expected auto, mpi, tcp://HOST:PORT, file:///PATH or env",
        where);
  const std::string location = where.substr(where.find("//") + 2);
  const Endpoint endpoint = tcp ? parse_endpoint(location) : Endpoint();
  check(tcp || location.starts_with('/'),
        "RendezvousOptions::where: found {}, expected file:// and an absolute path", where);
  check(
      launch.has_value(),
      "RendezvousOptions::where: found {}, but the rank of this process is unknown; set RANK and WORLD_SIZE",
      where);
  RendezvousPlan plan = plan_for(*launch, tcp ? RendezvousPlan::Method::tcp : RendezvousPlan::Method::file,
                                 tcp ? "tcp" : "file", fmt::format(", {}", where));
  plan.endpoint = endpoint;
  if (file) plan.path = location;
  return plan;
}

}  // namespace convoy
