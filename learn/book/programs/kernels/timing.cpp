// How often a comparison of two programs is wrong, for several plans of measurements.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../../../common/session.h"

double mean(std::vector<double> values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / values.size();
}
double minimum(std::vector<double> values) { return *std::min_element(values.begin(), values.end()); }
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

using Statistic = double (*)(std::vector<double>);

// Both return the time of the second program, as a multiple of that of the first one.
double one_after_another(Session& session, int rounds, Statistic statistic) {
  std::vector<double> first, second;
  for (int i = 0; i < rounds; ++i) first.push_back(session.first());
  for (int i = 0; i < rounds; ++i) second.push_back(session.second());
  return statistic(second) / statistic(first);
}
double alternating(Session& session, int rounds, Statistic statistic) {
  std::vector<double> first, second;
  for (int i = 0; i < rounds; ++i) {
    first.push_back(session.first());
    second.push_back(session.second());
  }
  return statistic(second) / statistic(first);
}
double ratios(Session& session, int rounds, Statistic statistic) {
  std::vector<double> each;
  for (int i = 0; i < rounds; ++i) {
    const double first = session.first();
    each.push_back(session.second() / first);
  }
  return statistic(each);
}

struct Plan {
  const char* name;
  double (*compare)(Session&, int, Statistic);
  Statistic statistic;
};
const Plan kPlans[] = {
    {"A A A B B B, means", one_after_another, mean},     {"A A A B B B, medians", one_after_another, median},
    {"A A A B B B, minima", one_after_another, minimum}, {"A B A B A B, means", alternating, mean},
    {"A B A B A B, medians", alternating, median},       {"A B A B A B, median of ratios", ratios, median}};

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  if (!is_json) std::printf("wrong of 1,000              3 rounds   20 rounds\n");
  for (const Plan& plan : kPlans) {
    int wrong[2] = {};
    for (int i = 0; i < 1000; ++i)
      for (const int rounds : {3, 20}) {
        Session session(1.05, i);  // B takes 5 % longer
        wrong[rounds == 20] += plan.compare(session, rounds, plan.statistic) <= 1;
      }
    std::printf(is_json ? "%s\"%s\": {\"3\": %d, \"20\": %d}" : "%s%-30s %5d %11d\n",
                is_json ? (&plan == kPlans ? "{" : ", ") : "", plan.name, wrong[0], wrong[1]);
  }
  if (!is_json) return 0;
  for (const bool alternates : {false, true}) {
    Session session(1.05, 8);
    std::printf(", \"%s\": [", alternates ? "ABAB" : "AABB");
    for (int i = 0; i < 40; ++i)
      std::printf("%s%.3f", i == 0 ? "" : ", ",
                  (alternates ? i % 2 : i / 20) == 0 ? session.first() : session.second());
    std::printf("]");
  }
  std::printf("}\n");
}
