#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ahead/executable.h"
#include "ahead/passes.h"
#include "ahead/program.h"

namespace ahead::passes {

/// The one door for every stage of every graph of a compiled function: of its forward, of each
/// backward, of its derivatives. A stage is left out if the user wants that; it is timed, and its
/// graph is verified and kept to be looked at. Several threads may use it at once.
class Stages : public std::enable_shared_from_this<Stages> {
 public:
  enum class Keep : uint8_t { All, Nothing };
  /// What random operators draw from in the graphs that backends get: the default generators, or
  /// states that the graphs are given.
  enum class Random : uint8_t { FromGenerators, FromStates };

  /// Leaves out the stages with these names; see check_skippable(). If nothing is kept, nothing is
  /// verified in between either.
  explicit Stages(std::vector<std::string> skipped, Keep keep = Keep::All,
                  Random random = Random::FromGenerators)
      : skipped_(std::move(skipped)), keep_(keep), random_(random) {}

  bool is_skipped(std::string_view stage) const;

  /// The result of a stage, and how long it took.
  template <class Result>
  struct Timed {
    Result result;
    double seconds;
  };
  /// Runs a stage and times it.
  template <class Stage>
  static auto run(Stage&& stage) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    auto result = stage();
    const std::chrono::duration<double> taken = Clock::now() - start;
    return Timed<decltype(result)>{std::move(result), taken.count()};
  }

  /// Verifies the graph that a stage made, and keeps it.
  void keep(std::string name, double seconds, const Graph& graph);

  /// Runs a stage that rewrites a graph and says how often it changed something, unless it is
  /// skipped. A changed graph is kept under its name and that of the part.
  template <class Rewrite>
  void rewrite(std::string_view name, std::string_view part, Graph& graph, Rewrite&& rewriting) {
    if (is_skipped(name)) return;
    const auto [changes, seconds] = run([&] { return rewriting(graph); });
    if (changes != 0) keep(std::string(name).append(part), seconds, graph);
  }

  /// Runs all passes over a graph.
  void optimise(Graph& graph, std::string_view part);
  /// Lets a backend compile a graph, which is kept under this name.
  aot::Executable compile(const aot::GraphCompiler& compiler, const aot::CompileRequest& request,
                          std::string name);
  /// A compiler that runs all passes before the given one is asked.
  aot::GraphCompiler optimising(aot::GraphCompiler compiler, std::string part);

  /// The programs kept so far, in order.
  std::vector<Program> programs() const;

 private:
  void keep_reported(std::vector<Program> reported);
  aot::Executable compile_as_is(const aot::GraphCompiler& compiler,
                                const aot::CompileRequest& request, std::string name);

  const std::vector<std::string> skipped_;
  const Keep keep_;
  const Random random_;
  mutable std::mutex mutex_;
  std::vector<Program> programs_;
};

/// Throws UserError, with the names there are, for a name that Options::skip_passes cannot have.
void check_skippable(const std::vector<std::string>& names);

}  // namespace ahead::passes
