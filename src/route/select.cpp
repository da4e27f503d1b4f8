#include "route/select.hpp"

namespace epmoe::route {

void select_highest(std::span<const float> scores, std::span<std::int32_t> best) {
  // Insertion into a sorted list: most scores fail the one comparison with its last element. Scores come in ascending
  // index order and only a strictly higher one moves up, hence the lowest index wins ties.
  const auto k = static_cast<std::int64_t>(best.size());
  const float* score = scores.data();
  std::int32_t* list = best.data();
  std::int64_t held = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(scores.size()); ++i) {
    std::int64_t place = held;
    if (held == k) {
      if (!(score[i] > score[list[k - 1]])) continue;
      place = k - 1;
    } else {
      ++held;
    }
    for (; place > 0 && score[i] > score[list[place - 1]]; --place) list[place] = list[place - 1];
    list[place] = i;
  }
}

}  // namespace epmoe::route
