#include "native/launch/by_sizes.h"

#include <list>
#include <mutex>

#include "ir/sizes/graph_numbers.h"

namespace ahead::native {
namespace {

/// A choice of sizes that was not used for so many others is forgotten. One of a GPT of 12 layers
/// takes about two megabytes.
constexpr size_t most_choices = 128;

class ChoicesOfSizes {
 public:
  ChoicesOfSizes(const Graph& graph, CompileAtSizes compile)
      : graph_(graph),
        sizes_at_(static_cast<size_t>(graph.find_input({Slot::Kind::Sizes, 0}))),
        compile_(std::move(compile)) {}

  /// The executable for the sizes among the arguments, which it does not take.
  aot::Executable take(std::vector<at::Tensor>& args) {
    const at::Tensor given = args[sizes_at_];
    args.erase(args.begin() + static_cast<ptrdiff_t>(sizes_at_));
    const auto* first = given.const_data_ptr<int64_t>();
    const std::vector<int64_t> sizes(first, first + given.numel());
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto choice = choices_.begin(); choice != choices_.end(); ++choice) {
      if (choice->sizes != sizes) continue;
      choices_.splice(choices_.begin(), choices_, choice);
      return choices_.front().executable;
    }
    choices_.push_front({sizes, compile_(at_sizes(graph_, sizes), count_++)});
    if (choices_.size() > most_choices) choices_.pop_back();
    return choices_.front().executable;
  }

 private:
  struct Choice {
    std::vector<int64_t> sizes;
    aot::Executable executable;
  };

  const Graph graph_;
  const size_t sizes_at_;
  const CompileAtSizes compile_;
  std::mutex mutex_;
  size_t count_ = 0;           ///< of choices that were compiled
  std::list<Choice> choices_;  ///< what was used last stands first
};

}  // namespace

aot::Executable by_sizes(const Graph& graph, CompileAtSizes compile) {
  auto choices = std::make_shared<ChoicesOfSizes>(graph, std::move(compile));
  const auto run = [choices](std::vector<at::Tensor>&& args) {
    const aot::Executable chosen = choices->take(args);
    return chosen(std::move(args));
  };
  // Inputs of a run are known by their positions, which must be those of the graph with sizes.
  const bool sizes_are_last = graph.inputs().back().slot.kind == Slot::Kind::Sizes;
  if (!sizes_are_last) return aot::Executable(run);
  return {run, [choices](std::vector<at::Tensor>&& args) {
            const aot::Executable chosen = choices->take(args);
            return chosen.begin(std::move(args));
          }};
}

}  // namespace ahead::native
