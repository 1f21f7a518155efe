// Subtracts the square of the mean from that of the squares.
struct Moments {
  float count = 0, mean = 0, squares = 0;
};

void add(Moments& m, float x) {
  const float squares = m.squares + m.count * m.mean * m.mean + x * x;
  const float sum = m.count * m.mean + x;
  m.count += 1;
  m.mean = sum / m.count;
  m.squares = squares - m.count * m.mean * m.mean;
}

Moments merge(const Moments& a, const Moments& b) {
  const float count = a.count + b.count, distance = b.mean - a.mean;
  if (count == 0) return {};
  return {count, a.mean + distance * b.count / count,
          a.squares + b.squares + distance * distance * a.count * b.count / count};
}
