// When a step of training ends, if gradients are added in buckets while the backward pass still runs.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

// The gradients of 12 layers in the order of the backward pass: the last layers, with most parameters, come first.
const double kKilobytes[] = {4000, 2000, 2000, 1000, 1000, 500, 500, 250, 250, 100, 100, 50};
const int kGradients = 12;
const double kBackward = 12;  // milliseconds: one layer per millisecond

// A ring of 64 ranks with 20 microseconds per message and links of 4 GB/s (milliseconds).
double cost(double kilobytes) { return 126 * 0.02 + 2 * 63.0 / 64 * kilobytes / 4000; }

struct Bucket {
  double ready, begin, end, kilobytes;
};

// A bucket is closed when it has at least `limit` kilobytes.
std::vector<Bucket> run(double limit) {
  std::vector<Bucket> buckets;
  double free = 0, kilobytes = 0;
  for (int i = 0; i < kGradients; ++i) {
    kilobytes += kKilobytes[i];
    if (kilobytes < limit && i < kGradients - 1) continue;
    const double ready = kBackward * (i + 1) / kGradients;
    const double begin = std::max(ready, free);
    free = begin + cost(kilobytes);
    buckets.push_back({ready, begin, free, kilobytes});
    kilobytes = 0;
  }
  return buckets;
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  std::printf(is_json ? "{" : "kilobytes per bucket   buckets   communication (ms)   exposed (ms)\n");
  const char* separator = "";
  for (const int limit : {1, 500, 1000, 4000, 8000, 12000}) {
    const std::vector<Bucket> buckets = run(limit);
    double sum = 0;
    for (const Bucket& each : buckets) sum += each.end - each.begin;
    const double exposed = buckets.back().end - kBackward;
    if (!is_json) {
      std::printf("%20d %9zu %20.2f %14.2f\n", limit, buckets.size(), sum, exposed);
      continue;
    }
    std::printf("%s\"%d\": {\"buckets\": %zu, \"sum\": %.2f, \"exposed\": %.2f, \"times\": [", separator,
                limit, buckets.size(), sum, exposed);
    separator = ",\n";
    for (const Bucket& each : buckets)
      std::printf("%s[%.2f, %.2f]", &each == &buckets[0] ? "" : ", ", each.begin, each.end);
    std::printf("]}");
  }
  std::printf(is_json ? "}\n" : "");
}
