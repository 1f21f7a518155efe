// When the kernels of a step end, if the host launches each of them, and if it launches one graph.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

// Microseconds. The host takes kLaunch for a launch, and kGraph for that of a graph. The device needs kGap from the end of a
// kernel to the begin of the next one that waits for it.
const double kLaunch = 4, kGraph = 8, kGap = 1;

struct Kernel {
  double launched, begin, end;
};

std::vector<Kernel> run(int kernels, double duration, bool is_graph) {
  std::vector<Kernel> result;
  double free = 0;
  for (int i = 0; i < kernels; ++i) {
    const double launched = is_graph ? kGraph : (i + 1) * kLaunch;
    const double begin = std::max(launched, free + (i == 0 ? 0 : kGap));
    free = begin + duration;
    result.push_back({launched, begin, free});
  }
  return result;
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  const char* separator = "{";
  if (!is_json) std::printf("each kernel   100 launches   one graph (microseconds)\n");
  for (const double duration : {1.0, 2.0, 4.0, 10.0, 100.0}) {
    const double launches = run(100, duration, false).back().end, graph = run(100, duration, true).back().end;
    if (!is_json) std::printf("%11.0f %14.0f %11.0f\n", duration, launches, graph);
    if (is_json)
      std::printf("%s\"%.0f\": {\"launches\": %.0f, \"graph\": %.0f}", separator, duration, launches, graph);
    separator = ", ";
  }
  for (const bool is_graph : {false, true}) {
    if (!is_json) continue;
    std::printf(", \"%s\": [", is_graph ? "six in a graph" : "six launches");
    const std::vector<Kernel> kernels = run(6, 2, is_graph);
    for (std::size_t i = 0; i < kernels.size(); ++i)
      std::printf("%s[%g, %g, %g]", i == 0 ? "" : ", ", kernels[i].launched, kernels[i].begin,
                  kernels[i].end);
    std::printf("]");
  }
  if (is_json) std::printf("}\n");
}
