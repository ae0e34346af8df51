#include <set>

#include "ahead/detail/pool.h"

namespace ahead::detail {
namespace pool_test {

struct Counted {
  static inline int alive = 0;
  Counted() { ++alive; }
  ~Counted() { --alive; }
  Counted(const Counted&) = delete;
  int number = 0;
};

TEST(Pool, ObjectsKeepTheirPlaceAndGoTogether) {
  {
    Pool<Counted> pool;
    std::vector<Counted*> places;
    for (int i = 0; i < 2000; ++i) {
      places.push_back(&pool.add());
      places.back()->number = i;
    }
    EXPECT_EQ(pool.size(), 2000u);
    EXPECT_EQ(std::set<Counted*>(places.begin(), places.end()).size(), 2000u);
    for (int i = 0; i < 2000; ++i) EXPECT_EQ(places[static_cast<size_t>(i)]->number, i);
    EXPECT_EQ(Counted::alive, 2000);
  }
  EXPECT_EQ(Counted::alive, 0);
}

TEST(Pool, MovingLeavesObjectsWhereTheyAre) {
  Pool<Counted> from;
  Counted* first = &from.add();
  first->number = 7;
  Pool<Counted> to(std::move(from));
  EXPECT_EQ(to.size(), 1u);
  EXPECT_EQ(from.size(), 0u);
  EXPECT_EQ(first->number, 7);
  from.add();
  std::swap(from, to);
  EXPECT_EQ(from.size(), 1u);
  EXPECT_EQ(first->number, 7);
  from = Pool<Counted>();
  EXPECT_EQ(to.size(), 1u);
}

}  // namespace pool_test
}  // namespace ahead::detail
