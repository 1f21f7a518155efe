#include "tests/simulation/simulation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "convoy/kernels/runtime/device_context.h"
#include "tests/simulation/checks.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/libc.h"
#include "tests/simulation/world.h"

namespace simulation {
namespace {

constexpr int kPort = 29500;
constexpr Time kMaxStart = 30 * kMillisecond;  // between the starts of the first and the last rank
constexpr Time kLook = kSecond / 2;            // between looks for waits without an end

/// Starts the ranks without convoy-launch.
void start_ranks(World& world) {
  const Schedule& schedule = world.schedule;
  const bool by_name = schedule.seed % 2 == 0;
  for (int id = 0; id < schedule.ranks; ++id) {
    RankRecord& record = world.add_rank(0, id, world.host(schedule.host_of(id)));
    std::map<std::string, std::string> variables = {
        {"RANK", std::to_string(record.id)},
        {"WORLD_SIZE", std::to_string(schedule.ranks)},
        {"MASTER_ADDR", by_name ? "host-0" : "10.0.0.2"},
        {"MASTER_PORT", std::to_string(kPort)},
        {"CONVOY_JOB", "job"},
        {"CONVOY_HOST_TIMEOUT", fmt::format("{}", schedule.host_timeout)}};
    if (schedule.has_secret) variables["CONVOY_SECRET"] = "0123456789abcdef0123";
    record.process = world.network.add_process(record.host, fmt::format("rank {}", id));
    record.process->record = &record;
    record.process->set_environment(variables);
    const auto start = static_cast<Time>(world.scheduler.random(kMaxStart));
    record.last_progress = start;
    world.scheduler.at(start, [&world, &record] {
      if (!record.process->has_ended)
        world.scheduler.start(record.process, [&world, &record] { run_rank(world.schedule, record); });
    });
  }
}

/// Replaces stderr by a stream that also keeps what a simulated process writes to a TextFile.
void capture_errors() {
  static const cookie_io_functions_t kFunctions = {
      .read = nullptr,
      .write = [](void*, const char* bytes, std::size_t count) -> ssize_t {
        if (const Coroutine* const caller = self())
          if (auto* const text = dynamic_cast<TextFile*>(caller->process->streams[2]))
            text->text.append(bytes, count);
        return next<ssize_t(int, const void*, std::size_t)>("write")(STDERR_FILENO, bytes, count);
      },
      .seek = nullptr,
      .close = nullptr};
  stderr = fopencookie(nullptr, "w", kFunctions);
  std::setvbuf(stderr, nullptr, _IONBF, 0);
}

}  // namespace

Result simulate(const Schedule& schedule, bool traces) {
  // The default context of all simulated processes: they share the variables of one thread.
  const auto device = convoy::DeviceContext::create_cpu({.threads = 1});
  World world{.schedule = schedule, .scheduler = Scheduler(schedule.seed)};
  set_scheduler(&world.scheduler);
  set_network(&world.network);
  if (traces)
    world.network.trace = [&world](const std::string& text) {
      fmt::print("{:12.6f} s  {}\n", 1e-9 * static_cast<double>(world.scheduler.now()), text);
      std::fflush(stdout);
    };
  for (int host = 0; host < schedule.hosts + schedule.spares; ++host)
    world.network.add_host(fmt::format("host-{}", host));
  capture_errors();
  Result result;
  Checks checks(world, result);
  if (schedule.is_launched) {
    world.launcher = std::make_unique<Launcher>(world);
    world.launcher->start();
  } else {
    start_ranks(world);
  }
  schedule_faults(world);
  const auto is_over = [&] { return checks.is_over(); };
  while (!is_over() && !checks.find_endless_waits())
    world.scheduler.run(world.scheduler.now() + kLook, [&] { return world.network.running == 0; });
  checks.check_end();
  result.end = world.scheduler.now();
  result.events = world.scheduler.events();
  result.messages = world.network.messages;
  result.connections = world.network.connections;
  set_scheduler(nullptr);
  set_network(nullptr);
  return result;
}

}  // namespace simulation
