// Each part counts equally.
struct Moments {
  float count = 0, mean = 0, squares = 0;
};

void add(Moments& m, float x) {
  m.count += 1;
  const float distance = x - m.mean;
  m.mean += distance / m.count;
  m.squares += distance * (x - m.mean);
}

Moments merge(const Moments& a, const Moments& b) {
  const float count = a.count + b.count, distance = b.mean - a.mean;
  if (count == 0) return {};
  return {count, a.mean + distance / 2,
          a.squares + b.squares + distance * distance * a.count * b.count / count};
}
