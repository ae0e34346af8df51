#pragma once

#include <optional>
#include <vector>

#include "ahead/graph.h"

namespace ahead::passes {

/// How one operator call treats the layouts of images, tensors of four dimensions.
struct LayoutFlow {
  /// Images that must all lie alike, as the results then do.
  std::vector<Value*> operands, results;
  /// Results that lie like them, too, but are no images: gradients of weights.
  std::vector<Value*> asides;
};

/// The flow of a call that works with channels_last images as well and passes that layout on;
/// nothing if it needs, or gives, the strides that the graph says. No call that draws random
/// numbers has one, since these are drawn in the order of memory.
std::optional<LayoutFlow> layout_flow(const Node& node);

/// For a view of some channels of images the first of them; nothing for other calls.
std::optional<int64_t> first_channel(const Node& node);

/// Whether a call takes the value in any layout, and its results do not follow.
bool takes_any_layout(const Node& node, const Value& value);

}  // namespace ahead::passes
