#include "support/round_trip.h"

void expect_round_trip(const ahead::Graph& graph) {
  const std::string text = graph.str();
  SCOPED_TRACE(text);
  ASSERT_NO_THROW(graph.verify());

  ahead::Graph parsed;
  ASSERT_NO_THROW(parsed = ahead::Graph::parse(text));
  ASSERT_NO_THROW(parsed.verify());
  EXPECT_EQ(parsed.str(), text);
  EXPECT_EQ(parsed.hash(), graph.hash());

  const ahead::Graph copy(graph);
  ASSERT_NO_THROW(copy.verify());
  EXPECT_EQ(copy.str(), text);
  EXPECT_EQ(copy.hash(), graph.hash());
}
