#pragma once

namespace ahead {

/// What a backend says of itself when it is registered. Everything is off unless it says otherwise,
/// so that a backend is never given a graph that it does not expect.
struct BackendTraits {
  /// It takes graphs for many sizes: an input in the slot `Sizes` holds the values of the symbols
  /// over which sizes, strides and constants are expressions. A backend without this gets a graph
  /// for each choice of sizes.
  bool takes_sizes = false;
};

}  // namespace ahead
