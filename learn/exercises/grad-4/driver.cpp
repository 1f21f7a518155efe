#include "program.h"

struct Pair {
  const char *f_text, *df_text;
  double (*f)(double);
  double (*df)(double);
  bool is_right;
};

static const Pair kPairs[] = {
    {"x^2", "2 x", [](double x) { return x * x; }, [](double x) { return 2 * x; }, true},
    {"x^2", "2.02 x", [](double x) { return x * x; }, [](double x) { return 2.02 * x; }, false},
    {"exp(x)", "exp(x)", [](double x) { return std::exp(x); }, [](double x) { return std::exp(x); }, true},
    {"exp(x)", "x", [](double x) { return std::exp(x); }, [](double x) { return x; }, false},
    {"sin(20 x)", "20 cos(20 x)", [](double x) { return std::sin(20 * x); },
     [](double x) { return 20 * std::cos(20 * x); }, true},
    {"sin(20 x)", "cos(20 x)", [](double x) { return std::sin(20 * x); },
     [](double x) { return std::cos(20 * x); }, false},
    {"cos(x)", "sin(x)", [](double x) { return std::cos(x); }, [](double x) { return std::sin(x); }, false},
    {"cos(x)", "-sin(x)", [](double x) { return std::cos(x); }, [](double x) { return -std::sin(x); }, true},
    {"1e6 x^3", "3e6 x^2", [](double x) { return 1e6 * x * x * x; }, [](double x) { return 3e6 * x * x; },
     true},
    {"1e6 x^3", "3.1e6 x^2", [](double x) { return 1e6 * x * x * x; }, [](double x) { return 3.1e6 * x * x; },
     false},
    {"1e-6 x^2", "2e-6 x", [](double x) { return 1e-6 * x * x; }, [](double x) { return 2e-6 * x; }, true},
    {"1e-6 x^2", "2.1e-6 x", [](double x) { return 1e-6 * x * x; }, [](double x) { return 2.1e-6 * x; },
     false},
    {"tanh(x)", "1 - tanh(x)^2", [](double x) { return std::tanh(x); },
     [](double x) { return 1 - std::tanh(x) * std::tanh(x); }, true},
    {"tanh(x)", "1 - x^2", [](double x) { return std::tanh(x); }, [](double x) { return 1 - x * x; }, false},
    {"5", "0", [](double) { return 5.0; }, [](double) { return 0.0; }, true},
    {"5", "5", [](double) { return 5.0; }, [](double) { return 5.0; }, false},
    {"log(1 + exp(x))", "1 / (1 + exp(-x))", [](double x) { return std::log(1 + std::exp(x)); },
     [](double x) { return 1 / (1 + std::exp(-x)); }, true},
    {"log(1 + exp(x))", "exp(x)", [](double x) { return std::log(1 + std::exp(x)); },
     [](double x) { return std::exp(x); }, false},
};

void lesson::run(Case& at) {
  // At these places, each of the wrong derivatives is wrong.
  const double places[] = {3, -2, 0.5, 1.25 + static_cast<double>(at.next() % 100) / 1000};
  for (int i = 0; i < at.size(0) && i < static_cast<int>(sizeof kPairs / sizeof *kPairs); ++i)
    for (double x : places) {
      const Pair& pair = kPairs[i];
      if (is_derivative(pair.f, pair.df, x) != pair.is_right)
        at.fail("it %s %s as the derivative of %s at x = %g", pair.is_right ? "refuses" : "accepts",
                pair.df_text, pair.f_text, x);
    }
}
