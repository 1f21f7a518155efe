#include <cstdio>

int sum_of_squares(int n);

int main() { std::printf("%d\n", sum_of_squares(100)); }
