// How much time a training loses to failures and to checkpoints, for several intervals between checkpoints.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "../../../common/philox.h"

// Minutes. A rank fails once in five years. A checkpoint takes 3 minutes, a restart 10.
const int kYears = 5, kMinutesOfYear = 525600, kCheckpoint = 3, kRestart = 10;
const int kWork = 30 * 24 * 60, kJobs = 20;

// Returns the minutes until `kWork` minutes of training are done. A failure is a random number per minute, a
// function of the job and the minute.
long minutes(int ranks, int interval, std::uint32_t job) {
  const double mean = static_cast<double>(kYears) * kMinutesOfYear / ranks;
  long minute = 0, done = 0, saved = 0;
  int checkpoint = 0;  // minutes that are left of one
  while (done < kWork) {
    ++minute;
    if (philox({static_cast<std::uint32_t>(minute), job, 0, 0}, {21, 0})[0] * 0x1p-32 < 1 / mean) {
      done = saved, checkpoint = 0, minute += kRestart;  // what was done since is lost
    } else if (checkpoint > 0) {
      if (--checkpoint == 0) saved = done;
    } else if (++done % interval == 0) {
      checkpoint = kCheckpoint;
    }
  }
  return minute;
}

// Returns which part of the time is lost, in percent.
double lost(int ranks, int interval) {
  long sum = 0;
  for (int job = 0; job < kJobs; ++job) sum += minutes(ranks, interval, job);
  return 100 * (1 - static_cast<double>(kWork) * kJobs / static_cast<double>(sum));
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  const int intervals[] = {10, 20, 40, 80, 160, 320, 640, 1280};
  std::printf(
      is_json
          ? "{"
          : "lost time (%%), by the minutes between checkpoints\nranks   failure each   best by the rule");
  if (!is_json)
    for (int interval : intervals) std::printf("%7d", interval);
  for (int ranks : {100, 1000, 4000}) {
    const double mean = static_cast<double>(kYears) * kMinutesOfYear / ranks,
                 rule = std::sqrt(2 * kCheckpoint * mean);
    std::printf(
        is_json ? "%s\"%d\": {\"mean\": %.0f, \"rule\": %.0f, \"lost\": {" : "%s\n%5d %10.0f min %14.0f min",
        is_json && ranks > 100 ? ",\n" : "", ranks, mean, rule);
    for (int interval : intervals) {
      if (is_json) std::printf("%s\"%d\": ", interval > 10 ? ", " : "", interval);
      std::printf(is_json ? "%.1f" : "%7.1f", lost(ranks, interval));
    }
    if (is_json) std::printf("}}");
  }
  std::printf(is_json ? "}\n" : "\n");
}
