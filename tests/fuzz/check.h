#pragma once

#include <functional>
#include <string>

#include "ahead/graph.h"
#include "fuzz/program.h"

namespace ahead::fuzz {

/// What came of comparing the graph of a program with eager mode.
struct Verdict {
  enum class Kind : uint8_t { Agrees, BothThrow, Unsupported, Differs };

  Kind kind = Kind::Agrees;
  /// Unsupported: the message. Differs: what kind of thing differs, for example `gradient`.
  std::string what;
  std::string detail;
  /// The graph, if there is one.
  std::string graph;
};

/// Changes what a graph returned, to see whether the comparison notices.
using Tamper = std::function<void(const Graph& graph, Tensors& outputs)>;

/// Runs the program in eager mode, traces it, interprets the graph and compares everything that can
/// be seen from outside.
Verdict check(const Program& program, const Tamper& tamper = {});

}  // namespace ahead::fuzz
