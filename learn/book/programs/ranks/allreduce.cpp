// Six ways to add an array of floats over all ranks. Prints what each costs; with the argument --json, as JSON.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../../../common/links.h"

using links::Rank;
using Floats = std::span<float>;

const int kRanksPerHost = 4;

void add(Floats into, Floats values) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] += values[i];
}

// Part `number` of `count` parts of an array. The parts differ by at most one float.
Floats part(Floats data, int number, int count) {
  const std::size_t begin = data.size() * number / count, end = data.size() * (number + 1) / count;
  return data.subspan(begin, end - begin);
}

void gather_and_broadcast(Rank& rank, Floats data) {
  std::vector<float> received(data.size());
  if (rank.rank() > 0) {
    rank.send(0, data);
    rank.receive(0, data);
    return;
  }
  for (int other = 1; other < rank.size(); ++other) {
    rank.receive(other, received);
    add(data, received);
  }
  for (int other = 1; other < rank.size(); ++other) rank.start_send(other, data);
  rank.wait();
}

void doubling(Rank& rank, Floats data) {
  std::vector<float> received(data.size());
  for (int distance = 1; distance < rank.size(); distance *= 2) {
    const int other = rank.rank() ^ distance;
    rank.exchange(other, data, other, received);
    add(data, received);
  }
}

void ring(Rank& rank, Floats data) {
  const int n = rank.size(), right = (rank.rank() + 1) % n, left = (rank.rank() + n - 1) % n;
  std::vector<float> received(data.size());
  for (int step = 0; step < n - 1; ++step) {  // reduce-scatter
    const Floats out = part(data, (rank.rank() - step + n) % n, n);
    const Floats sum = part(data, (rank.rank() - step - 1 + n) % n, n);
    const Floats in = Floats(received).first(sum.size());
    rank.exchange(right, out, left, in);
    add(sum, in);
  }
  for (int step = 0; step < n - 1; ++step) {  // all-gather
    const Floats out = part(data, (rank.rank() + 1 - step + n) % n, n);
    rank.exchange(right, out, left, part(data, (rank.rank() - step + n) % n, n));
  }
}

void halving(Rank& rank, Floats data) {
  const int n = rank.size();
  std::vector<float> received(data.size());
  int begin = 0, count = n;  // the parts that this rank still adds
  for (int distance = n / 2; distance > 0; distance /= 2) {
    const int other = rank.rank() ^ distance;
    const bool keeps_upper = (rank.rank() & distance) != 0;
    const auto half = [&](bool is_upper) {
      const Floats first = part(data, begin + (is_upper ? count / 2 : 0), n);
      const Floats last = part(data, begin + (is_upper ? count : count / 2) - 1, n);
      return Floats(first.data(), last.data() + last.size());
    };
    const Floats kept = half(keeps_upper), in = Floats(received).first(kept.size());
    rank.exchange(other, half(!keeps_upper), other, in);
    add(kept, in);
    count /= 2;
    if (keeps_upper) begin += count;
  }
  for (int distance = 1; distance < n; distance *= 2) {  // the same way back
    const int other = rank.rank() ^ distance;
    const int first = rank.rank() / distance * distance, of_other = other / distance * distance;
    const auto parts = [&](int at) {
      const Floats last = part(data, at + distance - 1, n);
      return Floats(part(data, at, n).data(), last.data() + last.size());
    };
    rank.exchange(other, parts(first), other, parts(of_other));
  }
}

void direct(Rank& rank, Floats data) {
  const int n = rank.size();
  const Floats own = part(data, rank.rank(), n);
  std::vector<std::vector<float>> received(n, std::vector<float>(own.size()));
  for (int step = 1; step < n; ++step) {  // another one first for each rank
    const int to = (rank.rank() + step) % n, from = (rank.rank() + n - step) % n;
    rank.start_send(to, part(data, to, n));
    rank.start_receive(from, received[from]);
  }
  rank.wait();
  std::copy(own.begin(), own.end(), received[rank.rank()].begin());
  std::fill(own.begin(), own.end(), 0.0f);
  for (int other = 0; other < n; ++other) add(own, received[other]);  // in the order of the ranks
  for (int step = 1; step < n; ++step) {
    const int to = (rank.rank() + step) % n, from = (rank.rank() + n - step) % n;
    rank.start_send(to, own);
    rank.start_receive(from, part(data, from, n));
  }
  rank.wait();
}

// Adds within each host first, with links that are fast. Then ranks with the same place in their hosts add their parts.
void hierarchical(Rank& rank, Floats data) {
  const int n = kRanksPerHost, host = rank.rank() / n, place = rank.rank() % n, hosts = rank.size() / n;
  const Floats own = part(data, place, n);
  std::vector<std::vector<float>> received(rank.size(), std::vector<float>(own.size()));
  const auto within_host = [&](auto out, auto in) {
    for (int step = 1; step < n; ++step) {
      const int to = (place + step) % n, from = (place + n - step) % n;
      rank.start_send(host * n + to, out(to));
      rank.start_receive(host * n + from, in(from));
    }
    rank.wait();
  };
  within_host([&](int to) { return part(data, to, n); }, [&](int from) { return Floats(received[from]); });
  for (int other = 0; other < n; ++other)
    if (other != place) add(own, received[other]);
  for (int other = 0; other < hosts; ++other) {
    if (other == host) continue;
    rank.start_send(other * n + place, own);
    rank.start_receive(other * n + place, received[other]);
  }
  rank.wait();
  for (int other = 0; other < hosts; ++other)
    if (other != host) add(own, received[other]);
  within_host([&](int) { return own; }, [&](int from) { return part(data, from, n); });
}

struct Way {
  const char* name;
  void (*all_reduce)(Rank&, Floats);
};
const Way kWays[] = {{"gather_and_broadcast", gather_and_broadcast},
                     {"doubling", doubling},
                     {"ring", ring},
                     {"halving", halving},
                     {"direct", direct},
                     {"hierarchical", hierarchical}};
// 20 microseconds per message, and 1 GB/s: usual for a network of 10 Gbit/s. Within a host, ten times as fast.
const links::Costs kNetwork = {20e-6, 1e-9}, kHosts = {20e-6, 1e-9, kRanksPerHost, 2e-6, 0.1e-9};

// Runs one way on 8 ranks, and prints a line or JSON. Ends the program if a sum is wrong.
void show(const Way& way, const links::Costs& costs, int floats, bool is_json) {
  const int ranks = 8;
  long messages = 0, bytes = 0, between_hosts = 0;
  double time = 0;
  for (const links::Counts& each : links::run(ranks, costs, [&](Rank& rank) {
         std::vector<float> data(floats);
         for (int i = 0; i < floats; ++i) data[i] = static_cast<float>(rank.rank() + i % 10);
         way.all_reduce(rank, data);
         for (int i = 0; i < floats; ++i)
           if (data[i] != static_cast<float>(ranks * (ranks - 1) / 2 + ranks * (i % 10))) {
             std::printf("%s: rank %d has a wrong sum at %d\n", way.name, rank.rank(), i);
             std::exit(1);
           }
       })) {
    messages += each.messages;
    bytes = std::max(bytes, each.bytes_sent);
    between_hosts += each.bytes_between_hosts;
    time = std::max(time, each.time);
  }
  if (is_json)
    std::printf("\"%d\": {\"messages\": %ld, \"bytes\": %ld, \"between_hosts\": %ld, \"microseconds\": %.0f}",
                4 * floats, messages, bytes, between_hosts, time * 1e6);
  else
    std::printf("%-21s %9ld %12ld %14ld %13.0f\n", way.name, messages, bytes, between_hosts, time * 1e6);
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  if (is_json) std::printf("{");
  for (const bool has_hosts : {false, true}) {
    if (!is_json)
      std::printf("%s, 4,000,000 bytes\n%33s %12s %14s %13s\n",
                  has_hosts ? "2 hosts with 4 ranks each" : "8 hosts with 1 rank each", "messages",
                  "bytes/rank", "between hosts", "microseconds");
    if (is_json) std::printf("%s\"%s\": {", has_hosts ? ",\n" : "", has_hosts ? "2_hosts" : "8_hosts");
    const char* of_way = "";
    for (const Way& way : kWays) {
      if (is_json) std::printf("%s\"%s\": {", of_way, way.name);
      of_way = ",\n";
      const char* of_size = "";
      for (const int floats : {250, 2'500, 25'000, 250'000, 1'000'000}) {
        if (!is_json && floats < 1'000'000) continue;
        if (is_json) std::printf("%s", of_size);
        of_size = ", ";
        show(way, has_hosts ? kHosts : kNetwork, floats, is_json);
      }
      if (is_json) std::printf("}");
    }
    if (is_json) std::printf("}");
  }
  if (is_json) std::printf("}\n");
}
