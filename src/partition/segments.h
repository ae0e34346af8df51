#pragma once

#include <cstddef>
#include <vector>

#include "partition/extract.h"

namespace ahead::partition {

/// The forward as a row of segments. If what is alive between two segments is saved, each of them
/// can be computed again on its own, and the backward needs the memory of one at a time.
///
///     bytes alive   ▂▆▇▅▂▆▇▅▂▆▇▅▂
///     cuts              ▲   ▲   ▲      where little is alive, about evenly spread
class Segments {
 public:
  explicit Segments(const JointFacts& joint);

  /// The nodes whose results are alive where the forward is cut into so many segments, in order.
  std::vector<size_t> boundary(size_t count) const;

 private:
  void follow_memory(const JointFacts& joint);
  void choose_cut(double ideal, double reach, std::vector<size_t>& cuts) const;

  /// A result of the forward that owns its memory.
  struct Span {
    size_t node;
    size_t last_use;  ///< by the forward
    int64_t bytes;
  };
  std::vector<Span> spans_;
  std::vector<size_t> places_;  ///< nodes of the forward, in order
  std::vector<int64_t> alive_;  ///< bytes, after each place
  std::vector<int64_t> made_;   ///< bytes, up to each place
};

}  // namespace ahead::partition
