#include "convoy/comm/bootstrap/rendezvous_plan.h"

#include <fmt/ranges.h>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"

namespace convoy::dist {
namespace {

/// Returns a plan with the ranks of `launch`. The caller adds the endpoint or path.
RendezvousPlan plan_for(const Launch& launch, RendezvousPlan::Method method, const std::string& source,
                        const std::string& place) {
  RendezvousPlan plan{.method = method,
                      .rank = launch.rank,
                      .world_size = launch.world_size,
                      .job = launch.job,
                      .local_rank = launch.local_rank,
                      .source = source};
  plan.note = fmt::format("{}{}", launch.source, place);
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
  plan.other_ports = launch.other_ports;
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

RendezvousPlan plan_rendezvous(const std::string& init_method, const Variables& variables) {
  if (init_method == "auto") return plan_by_launcher(launch_from(variables));
  if (init_method == "env") {
    const std::optional<Launch> launch = launch_from_rank(variables);
    check_option(launch.has_value(), "RendezvousOptions::init_method",
                 "found env, but RANK and WORLD_SIZE are not set; set them, and MASTER_ADDR and MASTER_PORT");
    return plan_by_launcher(launch);
  }
  const std::optional<Launch> launch = launch_from(variables);
  if (init_method == "mpi") {
    // Some launchers set no MPI variables; MPI then provides the world size.
    if (launch && launch->by_mpi) return plan_for(*launch, RendezvousPlan::Method::mpi, "mpi", ", MPI");
    return {
        .method = RendezvousPlan::Method::mpi, .world_size = 0, .source = "mpi", .note = "rendezvous by MPI"};
  }
  const bool tcp = init_method.starts_with("tcp://"), file = init_method.starts_with("file://");
  check_option(tcp || file, "RendezvousOptions::init_method",
               "found '{}', expected auto, mpi, tcp://HOST:PORT, file:///PATH or env", init_method);
  const std::string location = init_method.substr(init_method.find("//") + 2);
  const Endpoint endpoint = tcp ? parse_endpoint(location) : Endpoint();
  check_option(tcp || location.starts_with('/'), "RendezvousOptions::init_method",
               "found {}, expected file:// and an absolute path", init_method);
  check_option(launch.has_value(), "RendezvousOptions::init_method",
               "found {}, but the rank of this process is unknown; set RANK and WORLD_SIZE", init_method);
  RendezvousPlan plan = plan_for(*launch, tcp ? RendezvousPlan::Method::tcp : RendezvousPlan::Method::file,
                                 tcp ? "tcp" : "file", fmt::format(", {}", init_method));
  plan.endpoint = endpoint;
  if (file) plan.path = location;
  return plan;
}

}  // namespace convoy::dist
