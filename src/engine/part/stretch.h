#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ahead/graph.h"
#include "engine/part/part.h"

namespace ahead::engine {

/// User code that was called in a backward, between two graphs.
struct Call {
  std::string what;
  size_t step;
  /// The gradients that it got, by place, and what they were like; nothing: undefined.
  std::vector<size_t> places;
  std::vector<std::optional<TensorMeta>> gradients;
  /// Where what it returned went, and what that was like; kNowhere as a place: nowhere.
  std::vector<int32_t> targets;
  std::vector<std::optional<TensorMeta>> results;
  /// It got what the node of the part before it returned, and then these.
  bool takes_outputs = false;
  /// The saved tensors that it unpacked, which are its results then, and go nowhere else.
  std::vector<size_t> hooked;
};

/// Parts of a backward and the calls between them, in order, from one step that runs as in eager to
/// the next.
struct Stretch {
  /// One or the other.
  struct Item {
    std::shared_ptr<const Part> part;
    std::optional<Call> call;
  };
  std::vector<Item> items;

  bool has_calls() const;
  bool has(const Part& part) const;
  bool operator==(const Stretch& other) const;
  /// One graph of the parts and the calls. What runs are the parts: no pass and no backend moves
  /// anything past user code.
  Graph graph() const;
};

}  // namespace ahead::engine
