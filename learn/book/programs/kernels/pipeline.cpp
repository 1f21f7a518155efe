// When a copy, a kernel and a copy back end, if the work is cut into chunks that take turns on several streams.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

// The device copies in one direction at a time, and this program's kernels fill it, so each of the three works on one chunk
// at a time. The whole array takes 4, 6 and 4 milliseconds, and each operation 0.1 more.
const double kWork[] = {4, 6, 4}, kStart = 0.1;

struct Operation {
  int chunk, kind;  // 0: copy to the device, 1: kernel, 2: copy back
  double begin, end;
};

std::vector<Operation> run(int streams, int chunks) {
  std::vector<Operation> operations;
  std::vector<double> stream_free(streams, 0);
  double device_free[3] = {};
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int kind = 0; kind < 3; ++kind) {
      double& stream = stream_free[chunk % streams];
      const double begin = std::max(stream, device_free[kind]);
      stream = device_free[kind] = begin + kStart + kWork[kind] / chunks;
      operations.push_back({chunk, kind, begin, stream});
    }
  return operations;
}

double end_of(const std::vector<Operation>& operations) {
  double end = 0;
  for (const Operation& each : operations) end = std::max(end, each.end);
  return end;
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  if (!is_json) std::printf("chunks   1 stream   2 streams   3 streams (ms)\n");
  const char* separator = "{";
  for (const int chunks : {1, 2, 4, 8, 32, 128}) {
    if (!is_json) {
      std::printf("%6d %10.1f %11.1f %11.1f\n", chunks, end_of(run(1, chunks)), end_of(run(2, chunks)),
                  end_of(run(3, chunks)));
      continue;
    }
    for (const int streams : {1, 2, 3}) {
      const std::vector<Operation> operations = run(streams, chunks);
      std::printf("%s\"%d_streams_%d_chunks\": {\"end\": %.1f, \"operations\": [", separator, streams, chunks,
                  end_of(operations));
      for (std::size_t i = 0; i < operations.size() && chunks <= 8; ++i)
        std::printf("%s[%d, %d, %.2f, %.2f]", i == 0 ? "" : ", ", operations[i].chunk, operations[i].kind,
                    operations[i].begin, operations[i].end);
      std::printf("]}");
      separator = ",\n";
    }
  }
  if (is_json) std::printf("}\n");
}
