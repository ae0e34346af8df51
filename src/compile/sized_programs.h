#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "compile/traced_function.h"
#include "derivative/sized_backward.h"
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
    std::shared_ptr<passes::Stages> stages;
  };

  SizedProgram(std::shared_ptr<const FittedGraph> graph, General general)
      : graph_(std::move(graph)), general_(std::move(general)) {}

  const FittedGraph& graph() const { return *graph_; }
  const std::shared_ptr<passes::Stages>& stages() const { return general_.stages; }
  /// The plan for these sizes, of a function that was traced for them.
  runtime::CallPlan at(const std::vector<int64_t>& sizes, const TracedFunction& traced) const;

  /// How often calls of all sizes ran it, or were seen to do what it does.
  std::atomic<uint64_t> calls{0};

 private:
  std::shared_ptr<const runtime::Prologue> share(const runtime::Prologue& prologue) const;

  const std::shared_ptr<const FittedGraph> graph_;
  const General general_;
  mutable std::mutex mutex_;
  mutable std::weak_ptr<const runtime::Prologue> last_prologue_;
};

/// What was traced of one function so far, and the programs for many sizes that came of it. Several
/// threads may use it at once.
class SizedPrograms {
 public:
  /// A program that is right for a traced function, and its sizes.
  struct Match {
    std::shared_ptr<SizedProgram> program;
    std::vector<int64_t> sizes;
  };

  /// Graphs that differ in numbers only.
  class Family {
   public:
    explicit Family(const TracedFunction& traced);

    /// Whether the function does the same, but for numbers.
    bool takes(const TracedFunction& traced) const;
    std::optional<Match> find(const GraphNumbers& numbers) const;
    /// Remembers a graph. A graph for its sizes and for those of others; null: there are no others
    /// that it could be compared with, or too many were made.
    std::shared_ptr<const FittedGraph> fit(const Graph& graph, const GraphNumbers& numbers);
    void add(std::shared_ptr<SizedProgram> program);
    bool remove(const std::shared_ptr<SizedProgram>& program);

   private:
    TracedFunction example_;  ///< without tensors
    mutable std::mutex mutex_;
    std::vector<GraphNumbers> samples_;
    std::vector<std::shared_ptr<SizedProgram>> programs_;
  };

  /// The family of a traced function.
  std::shared_ptr<Family> family_of(const TracedFunction& traced);
  /// Forgets a program that turned out to be wrong.
  void remove(const std::shared_ptr<SizedProgram>& program);
  void clear();

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Family>> families_;
};

}  // namespace ahead::compiling
