#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ahead/executable.h"
#include "ahead/graph.h"
#include "engine/gradients.h"
#include "engine/part/part.h"
#include "engine/part/stretch.h"
#include "engine/walk/backward.h"
#include "engine/walk/size_pattern.h"
#include "ir/sizes/size_guards.h"

namespace ahead::engine {

/// What became of one run of a program.
struct RunReport {
  /// Whoever asks wants one graph: a cut is an error.
  bool must_be_whole = false;
  uint64_t compiles = 0;
  uint64_t eager_nodes = 0;  ///< without the root
  uint64_t cuts = 0;
  uint64_t calls = 0;  ///< of user code, between graphs
  double capture_seconds = 0;
  /// Steps ran as in eager, since another thread was capturing something of the same program.
  bool met_a_capture = false;
  /// Why nodes that could have been part of a graph are not, in words.
  std::vector<std::string> problems;
};

/// Throws Unsupported: the backward is no one graph, because this step runs as in eager.
[[noreturn]] void throw_cut(const Step& step, size_t index, const std::string& why);

/// What is known of all backwards with one key and sizes of one pattern: which of their steps can
/// be traced, and the parts compiled so far. Which part comes next depends on what steps that are
/// not traced returned.
///
/// Several threads may use it at once, and none waits for another: a capture changes a copy of what
/// is known. While one thread captures, others run as in eager what they do not find.
class Program {
 public:
  Program(const Backward& backward, aot::GraphCompiler compiler, SizePattern sizes);

  /// The values of the sizes that change, if the program is for backwards with these sizes.
  std::optional<std::vector<int64_t>> match(const std::vector<int64_t>& sizes) const;
  /// The pattern for these sizes too; one without changing sizes if graphs for them could not be
  /// made.
  SizePattern widened(const std::vector<int64_t>& sizes,
                      const std::vector<bool>& are_dimensions) const;
  /// How many sizes differ from those for which it was made.
  size_t count_changed(const std::vector<int64_t>& sizes) const;
  /// Whether it is for backwards of the same sizes only.
  bool has_fixed_sizes() const { return known_.load()->sizes.is_fixed(); }

  /// Runs a backward with this key and these values of changing sizes to the end and returns the
  /// gradients asked for.
  std::vector<at::Tensor> run(Backward& backward, const std::vector<int64_t>& sizes,
                              RunReport& report);

  /// One for each row of parts with calls between them, or else for each part.
  std::vector<std::shared_ptr<const Graph>> graphs() const;

 private:
  using PartPtr = std::shared_ptr<const Part>;
  /// One run: the backward, what waits, and the values of changing sizes.
  struct Run {
    Backward& backward;
    Gradients& gradients;
    const std::vector<int64_t>& sizes;
    RunReport& report;
    std::vector<Stretch>* stretches;  ///< null: nobody wants to know what ran
  };
  /// What was found out so far.
  struct Known {
    std::vector<Step::Kind> kinds;
    std::vector<PartPtr> parts;
    SizePattern sizes;
    std::vector<std::shared_ptr<const SizeGuards>> guards;  ///< of parts for changing sizes
    /// The sizes for which steps could not be traced.
    std::vector<std::vector<int64_t>> failed_at;
    std::map<size_t, std::string> problems;  ///< of these steps
    /// Those with calls.
    std::vector<Stretch> stretches;
    /// Whether there are parts that may be one graph together, which was not seen yet.
    bool has_new_parts = false;
  };
  /// What is done next: the part, or if there is none, steps one by one up to `end`.
  struct Next {
    PartPtr part;
    size_t end;
  };

  Next find_next(size_t begin, const Run& run);
  static PartPtr find(const Known& known, size_t begin, const Run& run);
  PartPtr capture(size_t begin, const Run& run);
  PartPtr make_part(Known& known, size_t begin, const Run& run) const;
  PartPtr add(Known& known, size_t begin, size_t end, const Run& run) const;
  static size_t find_culprit(const Known& known, size_t begin, size_t end, const Run& run);
  void retry_for_other_sizes(const Backward& backward);
  void run_eagerly(size_t begin, size_t end, const Run& run, bool& was_eager) const;
  std::string why_eager(size_t step) const;
  static void call_before(const Step& step, size_t index, const Run& run);
  void unpack(size_t begin, const Run& run) const;
  static void call_node(const Step& step, size_t index, const Run& run);
  static void call_after(const Part& part, const Run& run, torch::autograd::variable_list&& outputs,
                         const torch::autograd::variable_list& inputs);
  void add_stretches(std::vector<Stretch>&& stretches);
  static std::optional<Part> lift(Known& known, size_t begin, size_t end, const Run& run,
                                  std::string& problem);
  static void give_up_lifting(Known& known, const Run& run, const std::string& reason);
  void compile(Part& part) const;
  static void run_part(const PartPtr& part, const Run& run);
  static void put_away(const Part::Destination& destination, at::Tensor output, const Run& run);

  const aot::GraphCompiler compiler_;
  std::atomic<std::shared_ptr<const Known>> known_;
  /// Whoever sets it may change what is known.
  std::atomic<bool> is_capturing_{false};
};

}  // namespace ahead::engine
