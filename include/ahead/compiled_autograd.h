#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ahead/backend.h"
#include "ahead/export.h"
#include "ahead/graph.h"

/// Captures what the autograd engine does in a backward as graphs, keeps them, and runs them
/// instead of the engine when the same backward comes again. Gradients, hooks and errors are
/// eager's.
///
/// Scopes belong to the thread that opens them. Where there is none, nothing changes: when the last
/// one in the process ends, LibTorch's engine is as it was. What the user's own code does in a
/// backward (hooks, custom functions that are not traceable, a backward inside the backward) is
/// never captured: it runs at its place each time.
namespace ahead::compiled_autograd {

/// How backwards are captured. An aggregate: `{.fullgraph = true}`.
struct Options {
  /// The name of a backend, as in ahead::Options.
  std::string backend = default_backend();
  /// A backward that would not be one graph throws Unsupported instead, which names the node at
  /// which it would be cut, or says why the eager engine would have to run it.
  bool fullgraph = false;
  /// Prints to std::clog what reasons() tells, as it happens.
  bool verbose = false;
  /// Whether sizes are arguments of graphs, where that is possible (see BackendTraits), so that
  /// others need no graphs of their own: all but 0 and 1 from the first capture on (true), never
  /// (false), or those that were seen to change (nothing).
  std::optional<bool> dynamic = std::nullopt;
  /// The most backwards kept. If there are more, those that come least often are captured each time
  /// that they come, and a warning says so once.
  int64_t cache_limit = 64;
};

/// While it lives, backwards that this thread starts are captured. Scopes nest; one that ends
/// before a scope inside it throws UserError.
class AHEAD_API Enable {
 public:
  explicit Enable(Options options = {});
  ~Enable() noexcept(false);
  Enable(const Enable&) = delete;
  Enable& operator=(const Enable&) = delete;

 private:
  int64_t depth_;
};

/// While it lives, backwards that this thread starts run in the eager engine.
class AHEAD_API Disable {
 public:
  Disable();
  ~Disable() noexcept(false);
  Disable(const Disable&) = delete;
  Disable& operator=(const Disable&) = delete;

 private:
  int64_t depth_;
};

/// What happened in this process since it started or since reset().
struct Stats {
  uint64_t captures = 0;         ///< backwards of which all or a part was captured
  uint64_t compiles = 0;         ///< graphs made; those without history are given to a backend
  uint64_t cache_hits = 0;       ///< backwards that ran what was captured before
  uint64_t cache_misses = 0;     ///< other captured ones: new, or met while others captured them
  uint64_t eager_fallbacks = 0;  ///< backwards that ran in the eager engine, though enabled
  uint64_t eager_nodes = 0;      ///< nodes of captured backwards that ran as in eager, each time
  uint64_t cuts = 0;           ///< how often such nodes, one or more in a row, stood in for graphs
  uint64_t calls = 0;          ///< how often user code was called between two graphs
  double lookup_seconds = 0;   ///< spent on walking autograd graphs and comparing them
  double capture_seconds = 0;  ///< spent on tracing and compiling
};
AHEAD_API Stats stats();

/// Why backwards were captured, why they or some of their nodes ran eagerly, in words; the most
/// recent last, older ones dropped.
AHEAD_API std::vector<std::string> reasons();

/// The graphs of all backwards known, in the order in which they were captured.
AHEAD_API std::vector<std::shared_ptr<const Graph>> graphs();

/// Forgets all backwards, counts and reasons. Throws UserError inside a captured backward.
AHEAD_API void reset();

}  // namespace ahead::compiled_autograd
