#include <span>

#include "counted.h"

struct Tile {
  Counted at[4][4];
};
struct Result {
  Counted at[2][2];
};

// d has 4 x 4 pixels of each input channel, and u the transformed filter of each channel, G g G'. Returns the
// 2 x 2 outputs, summed over the channels: A' [(G g G') . (B' d B)] A, where . multiplies element by element,
// and
//
//        1  0 -1  0            1  1  1  0
//   B' = 0  1  1  0       A' = 0  1 -1 -1
//        0 -1  1  0
//        0  1  0 -1
//
// B is B' with rows and columns exchanged. A product with B' needs additions only. A Counted is a float whose
// operations are counted.
Result winograd(std::span<const Tile> d, std::span<const Tile> u) {
  // TODO
  return {};
}
