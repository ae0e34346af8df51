#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ahead/executable.h"
#include "ahead/graph.h"
#include "engine/backward.h"
#include "engine/gradients.h"

namespace ahead::engine {

/// A run of steps compiled into one graph.
struct Part {
  /// What waits at a place; empty: nothing.
  struct Expected {
    size_t place;
    std::optional<TensorMeta> gradient;
  };
  /// A tensor that the graph takes: one that nodes hold, or a gradient that waits.
  struct Argument {
    bool is_gradient;
    size_t index;
  };
  /// Where a tensor that the graph returns goes.
  struct Destination {
    bool is_result;
    size_t index;
  };

  size_t begin = 0;  ///< the first step
  size_t end = 0;    ///< one after the last
  /// All places that the steps read or add to.
  std::vector<Expected> expected;
  std::vector<Argument> arguments;
  std::vector<Destination> destinations;
  /// Steps that add to the `.grad` of a leaf.
  std::vector<size_t> accumulations;
  /// Offsets of the arguments into their storage, if the graph depends on them.
  std::vector<int64_t> offsets;
  std::shared_ptr<const Graph> graph;
  aot::Executable run;
};

/// What became of one run of a program.
struct RunReport {
  uint64_t compiles = 0;
  double capture_seconds = 0;
  /// Why nodes that could have been part of a graph are not, in words.
  std::vector<std::string> problems;
};

/// What is known of all backwards with one key: which of their steps can be traced, and the parts
/// compiled so far. Which part comes next depends on what steps that are not traced returned.
/// Several threads may use it at once.
class Program {
 public:
  Program(const Backward& backward, aot::GraphCompiler compiler);

  /// Runs a backward with this key to the end and returns the gradients asked for.
  std::vector<at::Tensor> run(Backward& backward, RunReport& report);

  std::vector<std::shared_ptr<const Graph>> graphs();

 private:
  const Part* find(size_t begin, const Gradients& gradients, const Backward& backward);
  const Part* capture(size_t begin, const Gradients& gradients, Backward& backward,
                      RunReport& report);
  Part trace_and_compile(size_t begin, size_t end, const Gradients& gradients, Backward& backward);
  void run_part(const Part& part, Gradients& gradients, Backward& backward);
  bool is_traced(size_t step);
  bool is_last(const Part& part);
  size_t end_of_part(size_t begin) const;

  const aot::GraphCompiler compiler_;
  std::mutex mutex_;
  std::vector<Step::Kind> kinds_;
  std::vector<std::unique_ptr<const Part>> parts_;
};

}  // namespace ahead::engine
