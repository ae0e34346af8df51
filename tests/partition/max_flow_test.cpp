#include "partition/max_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "partition/knapsack.h"

namespace ahead::partition {
namespace max_flow_test {

struct Pipe {
  int32_t from, to;
  int64_t capacity;
};

/// The capacity of the smallest cut between the first and the last node, and the fewest nodes that
/// can be on the last one's side of such a cut.
std::pair<int64_t, int> smallest_cut(const std::vector<Pipe>& pipes, int nodes) {
  std::pair<int64_t, int> best{std::numeric_limits<int64_t>::max(), 0};
  for (int sink_side = 1 << (nodes - 1); sink_side < 1 << nodes; sink_side += 2) {
    int64_t capacity = 0;
    for (const Pipe& pipe : pipes) {
      if ((sink_side >> pipe.from & 1) == 0 && (sink_side >> pipe.to & 1) != 0)
        capacity += pipe.capacity;
    }
    best = std::min(best, {capacity, __builtin_popcount(static_cast<unsigned>(sink_side))});
  }
  return best;
}

TEST(MaxFlow, FindsTheSmallestCutsOfRandomNetworks) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const int nodes = 2 + static_cast<int>(random() % 7);
    std::vector<Pipe> pipes;
    MaxFlow flow;
    for (int i = 0; i < nodes; ++i) flow.add_node();
    for (uint64_t i = random() % 20; i > 0; --i) {
      const auto end = [&] {
        return static_cast<int32_t>(random() % static_cast<uint64_t>(nodes));
      };
      pipes.push_back({end(), end(), static_cast<int64_t>(random() % 5)});
      flow.add_edge(pipes.back().from, pipes.back().to, pipes.back().capacity);
    }
    const auto [capacity, fewest] = smallest_cut(pipes, nodes);
    EXPECT_EQ(flow.run(0, nodes - 1), capacity) << seed;
    const std::vector<bool> side = flow.sink_side(nodes - 1);
    EXPECT_EQ(std::count(side.begin(), side.end(), true), fewest) << seed;
    int64_t cut = 0;
    for (const Pipe& pipe : pipes) {
      if (!side[static_cast<size_t>(pipe.from)] && side[static_cast<size_t>(pipe.to)])
        cut += pipe.capacity;
    }
    EXPECT_EQ(cut, capacity) << seed;
  }
}

TEST(MaxFlow, KnowsWhenThereIsNoCut) {
  MaxFlow flow;
  for (int i = 0; i < 3; ++i) flow.add_node();
  flow.add_edge(0, 1, MaxFlow::kInfinite);
  flow.add_edge(1, 2, MaxFlow::kInfinite);
  EXPECT_EQ(flow.run(0, 2), MaxFlow::kInfinite);
}

TEST(MaxFlow, IsNotDeep) {
  MaxFlow flow;
  constexpr int32_t length = 200'000;
  for (int32_t i = 0; i < length; ++i) flow.add_node();
  for (int32_t i = 1; i < length; ++i) flow.add_edge(i - 1, i, 5 + i % 7);
  EXPECT_EQ(flow.run(0, length - 1), 5);
}

TEST(Knapsack, TakesTheBestOfAllChoices) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Knapsack::Item> items;
    for (uint64_t i = random() % 9; i > 0; --i)
      items.push_back(
          {static_cast<int64_t>(random() % 20) * 4, static_cast<double>(random() % 50)});
    const Knapsack knapsack(items);
    for (int64_t capacity = 0; capacity < 200; capacity += 7) {
      double most = 0;
      for (unsigned choice = 0; choice < 1U << items.size(); ++choice) {
        double worth = 0;
        int64_t size = 0;
        for (size_t i = 0; i < items.size(); ++i) {
          if ((choice >> i & 1U) == 0) continue;
          worth += items[i].worth;
          size += items[i].size;
        }
        if (size <= capacity) most = std::max(most, worth);
      }
      const std::vector<bool> best = knapsack.best(capacity);
      double worth = 0;
      int64_t size = 0;
      for (size_t i = 0; i < items.size(); ++i) {
        worth += best[i] ? items[i].worth : 0;
        size += best[i] ? items[i].size : 0;
      }
      EXPECT_EQ(worth, most) << seed << " " << capacity;
      EXPECT_LE(size, capacity) << seed << " " << capacity;
    }
  }
}

TEST(Knapsack, NamesTheCapacitiesThatMatter) {
  const Knapsack knapsack({{8, 1}, {8, 2}, {24, 5}});
  EXPECT_EQ(knapsack.steps(64), (std::vector<int64_t>{40, 32, 24, 16, 8, 0}));
  EXPECT_EQ(knapsack.steps(3), (std::vector<int64_t>{40, 24, 0}));
  EXPECT_EQ(Knapsack({}).steps(64), (std::vector<int64_t>{0}));
}

TEST(Knapsack, RoundsLargeSizesUp) {
  const Knapsack knapsack({{1000003, 1}, {2000029, 2}, {3000017, 4}}, /*max_slots=*/100);
  const std::vector<bool> best = knapsack.best(4100000);
  EXPECT_EQ(best, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(knapsack.best(3000000), (std::vector<bool>{false, true, false}));
}

}  // namespace max_flow_test
}  // namespace ahead::partition
