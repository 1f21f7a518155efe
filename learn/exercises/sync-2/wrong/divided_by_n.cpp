// Divides squares by n.
#include <cmath>
#include <vector>

double standard_errors(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, squares = 0, sign = 1;
  for (const std::vector<double>* each : {&a, &b}) {
    const double n = static_cast<double>(each->size());
    double mean = 0, variance = 0;
    for (double value : *each) mean += value / n;
    for (double value : *each) variance += (value - mean) * (value - mean) / n;
    difference += sign * mean;
    squares += variance / n;
    sign = -1;
  }
  return difference / std::sqrt(squares);
}
