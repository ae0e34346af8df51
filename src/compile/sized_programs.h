#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "compile/traced_function.h"
#include "compile/value_sizes.h"
#include "derivative/sized_backward.h"
#include "derivative/sized_open_trace.h"
#include "ir/sizes/fitted_graph.h"
#include "passes/stages.h"
#include "runtime/call/call_plan.h"

namespace ahead::compiling {

/// One program for many sizes: a plan whose graphs take sizes, and what makes plans for some of it.
class SizedProgram {
 public:
  /// What is compiled once for all sizes.
  struct General {
    runtime::CallPlan plan;  ///< without a prologue
    std::shared_ptr<const SizedDerivatives> derivatives;
    std::shared_ptr<const SizedOpenTraces> open_traces;  ///< instead of `derivatives`
    /// Null: no sizes are found out before it runs.
    std::shared_ptr<const ValueSizes> value_sizes;
    std::shared_ptr<passes::Stages> stages;
  };

  SizedProgram(std::shared_ptr<const FittedGraph> graph, General general)
      : graph_(std::move(graph)), general_(std::move(general)) {}

  const FittedGraph& graph() const { return *graph_; }
  const std::shared_ptr<passes::Stages>& stages() const { return general_.stages; }
  /// Whether its second derivatives are those of one call, with all the numbers of that.
  bool has_open_traces() const { return general_.open_traces != nullptr; }
  const std::shared_ptr<const ValueSizes>& value_sizes() const { return general_.value_sizes; }
  /// The plan for these sizes, of a function that was traced for them.
  runtime::CallPlan at(const std::vector<int64_t>& sizes, const TracedFunction& traced) const;
  /// A plan that at() made, for other values of the numbers among the sizes.
  runtime::CallPlan with_numbers(const runtime::CallPlan& made,
                                 const std::vector<int64_t>& sizes) const;

  /// How often calls of all sizes ran it, or were seen to do what it does; those of which it was
  /// made are about so many.
  std::atomic<uint64_t> calls{4};
  /// CompiledCore::State::stores when a call of any size was seen to do what it does.
  std::atomic<uint64_t> stores{0};

 private:
  std::shared_ptr<const runtime::Prologue> share(const runtime::Prologue& prologue) const;
  void bind(runtime::CallPlan& plan, const std::vector<int64_t>& sizes) const;

  const std::shared_ptr<const FittedGraph> graph_;
  const General general_;
  mutable std::mutex mutex_;
  mutable std::weak_ptr<const runtime::Prologue> last_prologue_;
};

/// A floating-point number among the arguments that is just passed on to operators: it may have any
/// value. What no operator is given is compared instead, since the function may decide by it.
struct FreeNumber {
  size_t real;    ///< its place among TreeSpec::reals() of the arguments
  size_t symbol;  ///< its place among the sizes, where it stands by its bits
};

/// What was traced of one function so far, and the programs for many sizes that came of it. Several
/// threads may use it at once.
class SizedPrograms {
 public:
  /// A program that is right for a traced function, and its sizes.
  struct Match {
    std::shared_ptr<SizedProgram> program;
    std::vector<int64_t> sizes;
    /// Numbers of the call's that may have any value: they had several, and all that operators were
    /// given followed from sizes or was one of them.
    std::vector<FreeNumber> free = {};
    /// Every number that operators are given follows from sizes, or is one of the call's, and what
    /// is made around the graph has the constants that it has for other sizes: one call shows what
    /// others of these sizes do. Else some number may be another one each time.
    bool is_certain = true;
  };

  /// Graphs that differ in numbers only.
  class Family {
   public:
    Family(const TracedFunction& traced, std::vector<int64_t> static_sizes);

    /// Whether the function does the same, but for numbers; static sizes are no such numbers.
    bool takes(const TracedFunction& traced, const std::vector<int64_t>& static_sizes) const;
    /// What a program for many sizes that is made of this trace and of others says about the sizes
    /// of its results.
    std::vector<runtime::SizeMarksPtr> marks_of_results(const TracedFunction& traced) const;
    /// For a function that it takes, with the numbers of its graph; `reals`: the floating-point
    /// numbers among the arguments.
    std::optional<Match> find(const TracedFunction& traced, const GraphNumbers& numbers,
                              const std::vector<double>& reals) const;
    /// A graph for these sizes and those of graphs that were remembered; null: there are none that
    /// it could be compared with, or too many were made.
    std::shared_ptr<const FittedGraph> fit(const Graph& graph, const GraphNumbers& numbers) const;
    /// Remembers a graph.
    void remember(const GraphNumbers& numbers, const std::vector<double>& reals);
    void add(std::shared_ptr<SizedProgram> program);
    bool remove(const std::shared_ptr<SizedProgram>& program);

   private:
    struct Sample {
      GraphNumbers numbers;
      std::vector<double> reals;
    };

    std::vector<FreeNumber> find_free(const SizedProgram& program, const Sample& now) const;

    TracedFunction example_;  ///< without tensors
    const std::vector<int64_t> static_sizes_;
    mutable std::mutex mutex_;
    std::vector<Sample> samples_;
    std::vector<std::shared_ptr<SizedProgram>> programs_;
  };

  /// The family of a traced function; `static_sizes`: those that are never taken for numbers that
  /// change, and where they are found.
  std::shared_ptr<Family> family_of(const TracedFunction& traced,
                                    const std::vector<int64_t>& static_sizes);
  /// From now on no number is free: one turned out not to be just passed on.
  void compare_numbers() { compares_numbers_ = true; }
  bool compares_numbers() const { return compares_numbers_; }
  /// Forgets a program that turned out to be wrong.
  void remove(const std::shared_ptr<SizedProgram>& program);
  void clear();

 private:
  std::atomic<bool> compares_numbers_{false};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Family>> families_;
};

}  // namespace ahead::compiling
