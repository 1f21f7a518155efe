// Of exercise conv-2: a float whose operations are counted.
#pragma once

struct Counted {
  float value = 0;
  static inline long additions = 0, multiplications = 0, divisions = 0;

  Counted() = default;
  Counted(float number) : value(number) {}
  friend Counted operator+(Counted a, Counted b) { return ++additions, a.value + b.value; }
  friend Counted operator-(Counted a, Counted b) { return ++additions, a.value - b.value; }
  friend Counted operator*(Counted a, Counted b) { return ++multiplications, a.value * b.value; }
  friend Counted operator/(Counted a, Counted b) { return ++divisions, a.value / b.value; }
  Counted operator-() const { return -value; }
  Counted& operator+=(Counted other) { return *this = *this + other; }
  Counted& operator-=(Counted other) { return *this = *this - other; }
  Counted& operator*=(Counted other) { return *this = *this * other; }
  Counted& operator/=(Counted other) { return *this = *this / other; }
};
