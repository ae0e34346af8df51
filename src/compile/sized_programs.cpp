#include "compile/sized_programs.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/same_bits.h"
#include "tensors/below_tracing.h"

namespace ahead::compiling {
namespace {

using runtime::CallPlan;
using runtime::Epilogue;
using runtime::Prologue;
using runtime::ViewStep;
using tracing::JointTrace;

/// So many kinds of graphs, and graphs of a kind, are remembered.
constexpr size_t most_families = 64;
constexpr size_t most_samples = 8;
/// So often one kind is fitted again because the sizes that came next did not fit.
constexpr size_t most_programs = 4;

template <class List, class Alike>
bool all_alike(const List& a, const List& b, const Alike& alike) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), alike);
}

bool are_alike(const Prologue& a, const Prologue& b) {
  const auto bases = [](const Prologue::Base& x, const Prologue::Base& y) {
    return x.arguments == y.arguments && x.counters == y.counters && x.tracked == y.tracked;
  };
  return all_alike(a.bases, b.bases, bases) &&
         all_alike(a.inputs, b.inputs, [](const Prologue::Input& x, const Prologue::Input& y) {
           return x.kind == y.kind && x.index == y.index;
         });
}

/// Whether the same is done after the graph, with whatever numbers.
bool are_alike(const Epilogue& a, const Epilogue& b) {
  const auto writes = [](const Epilogue::Write& x, const Epilogue::Write& y) {
    return x.input == y.input && x.output == y.output && x.seen_by_autograd == y.seen_by_autograd &&
           x.version_bumps == y.version_bumps && x.geometry.has_value() == y.geometry.has_value() &&
           x.in_graph == y.in_graph;
  };
  const auto views = [](const ViewStep& x, const ViewStep& y) {
    return x.op == y.op && x.source == y.source && x.no_grad == y.no_grad &&
           x.is_relative == y.is_relative && x.is_one_of_several == y.is_one_of_several &&
           x.rest.size() == y.rest.size();
  };
  const auto reshapes = [](const Epilogue::Reshape& x, const Epilogue::Reshape& y) {
    return x.argument == y.argument;
  };
  const auto bumps = [](const Epilogue::VersionBump& x, const Epilogue::VersionBump& y) {
    return x.argument == y.argument && x.bumps == y.bumps;
  };
  return a.rebased_arguments == b.rebased_arguments &&
         all_alike(a.reshapes, b.reshapes, reshapes) &&
         all_alike(a.version_bumps, b.version_bumps, bumps) &&
         a.inference_outputs == b.inference_outputs && a.new_versions == b.new_versions &&
         a.requires_grad_changes == b.requires_grad_changes && a.resets == b.resets &&
         a.new_grads == b.new_grads && a.results == b.results &&
         a.num_reset_views == b.num_reset_views && a.grad_mode_after == b.grad_mode_after &&
         all_alike(a.writes, b.writes, writes) && all_alike(a.views, b.views, views);
}

using Masks = std::unordered_map<int64_t, std::vector<bool>>;

/// Whether the same is known of the autograd nodes that called operators of the graph.
bool are_same_for(const Graph& graph, const Masks& a, const Masks& b) {
  if (a.empty() && b.empty()) return true;
  for (const Node& node : graph.nodes()) {
    const auto of_a = a.find(node.sequence), of_b = b.find(node.sequence);
    if ((of_a == a.end()) != (of_b == b.end())) return false;
    if (of_a != a.end() && of_a->second != of_b->second) return false;
  }
  return true;
}

/// Whether the backward writes to the same tensors from outside, as often.
bool have_same_backward_writes(const JointTrace& a, const JointTrace& b) {
  using Write = tracing::InputFacts::BackwardWrite;
  const auto to_input = [](const tracing::InputFacts& x, const tracing::InputFacts& y) {
    const Write none;
    const Write& of_x = x.backward_write ? *x.backward_write : none;
    const Write& of_y = y.backward_write ? *y.backward_write : none;
    return x.backward_write.has_value() == y.backward_write.has_value() &&
           of_x.version_bumps == of_y.version_bumps && of_x.is_checked == of_y.is_checked;
  };
  const auto to_tangent = [](const JointTrace::TangentWrite& x, const JointTrace::TangentWrite& y) {
    return x.tangent == y.tangent && x.version_bumps == y.version_bumps;
  };
  return all_alike(a.inputs, b.inputs, to_input) &&
         all_alike(a.tangent_writes, b.tangent_writes, to_tangent);
}

bool are_alike(const JointTrace& a, const JointTrace& b) {
  return have_same_backward_writes(a, b) && a.differentiates == b.differentiates &&
         are_same_for(a.graph, a.reaching_tangents, b.reaching_tangents) &&
         are_same_for(a.graph, a.gradients_behind, b.gradients_behind) &&
         a.tangents_leading_to == b.tangents_leading_to &&
         a.tangents_sharing == b.tangents_sharing &&
         a.tangents_passing_through == b.tangents_passing_through &&
         ahead::are_alike(a.graph, b.graph);
}

/// Sizes of 0 and 1 are special to many operators: graphs for these say nothing about others.
bool can_be_compared(const GraphNumbers& a, const GraphNumbers& b) {
  bool is_other = false;
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (a.values[i] == b.values[i]) continue;
    is_other = true;
    if (a.is_input_size[i] && std::min(a.values[i], b.values[i]) < 2) return false;
  }
  return is_other;
}

/// Whether each of these symbols is a number of the call's.
bool are_all_given(const std::vector<size_t>& symbols, const std::vector<int64_t>& sizes,
                   const std::vector<double>& reals) {
  return std::all_of(symbols.begin(), symbols.end(), [&](size_t symbol) {
    return std::any_of(reals.begin(), reals.end(),
                       [&](double real) { return bits_of(real) == sizes[symbol]; });
  });
}

}  // namespace

std::shared_ptr<const Prologue> SizedProgram::share(const Prologue& prologue) const {
  const auto is_same = [](const Prologue::Input& x, const Prologue::Input& y) {
    return x.captured.is_same(y.captured);
  };
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<const Prologue> last = last_prologue_.lock();
  if (last != nullptr && all_alike(last->inputs, prologue.inputs, is_same)) return last;
  last = std::make_shared<const Prologue>(prologue);
  last_prologue_ = last;
  return last;
}

CallPlan SizedProgram::at(const std::vector<int64_t>& sizes, const TracedFunction& traced) const {
  CallPlan plan = general_.plan;
  plan.prologue = share(traced.frame.prologue);
  const std::vector<Epilogue::Write> writes = std::move(plan.epilogue.writes);
  plan.epilogue = traced.frame.epilogue;
  for (size_t i = 0; i < writes.size(); ++i) {
    plan.epilogue.writes[i].output = writes[i].output;
    plan.epilogue.writes[i].in_graph = writes[i].in_graph;
  }
  plan.backward.autocast = traced.autocast;
  if (has_open_traces()) {
    plan.backward.derivatives =
        general_.open_traces->at(sizes, traced.function, traced.inputs, traced.captured);
  }
  bind(plan, sizes);
  return plan;
}

CallPlan SizedProgram::with_numbers(const CallPlan& made, const std::vector<int64_t>& sizes) const {
  CallPlan plan = made;
  bind(plan, sizes);
  return plan;
}

/// Lets the graphs of a plan have these sizes.
void SizedProgram::bind(CallPlan& plan, const std::vector<int64_t>& sizes) const {
  const tracing::BelowTracing below;
  const at::Tensor given = at::tensor(sizes, at::kLong);
  plan.forward = with_last_argument(general_.plan.forward, given);
  if (plan.backward.program == nullptr) return;
  plan.backward.program = backward_at_sizes(
      std::static_pointer_cast<BackwardProgram>(general_.plan.backward.program), given);
  if (general_.derivatives != nullptr) plan.backward.derivatives = general_.derivatives->at(sizes);
}

SizedPrograms::Family::Family(const TracedFunction& traced, std::vector<int64_t> static_sizes)
    : example_(traced), static_sizes_(std::move(static_sizes)) {
  example_.function = nullptr;
  example_.inputs.clear();
  for (tracing::InputFacts& input : example_.trace.inputs) {
    const auto backward_write = input.backward_write;
    input = {};
    input.backward_write = backward_write;
  }
  example_.trace.results.clear();
  example_.trace.graph.forget_captured();
  for (Prologue::Input& input : example_.frame.prologue.inputs) input.captured.reset();
}

bool SizedPrograms::Family::takes(const TracedFunction& traced,
                                  const std::vector<int64_t>& static_sizes) const {
  return static_sizes_ == static_sizes && example_.static_arguments == traced.static_arguments &&
         are_alike(example_.trace, traced.trace) &&
         are_alike(example_.frame.prologue, traced.frame.prologue) &&
         are_alike(example_.frame.epilogue, traced.frame.epilogue);
}

std::vector<runtime::SizeMarksPtr> SizedPrograms::Family::marks_of_results(
    const TracedFunction& traced) const {
  std::vector<runtime::SizeMarksPtr> marks;
  for (size_t i = 0; i < traced.frame.result_sizes.size(); ++i) {
    const Dims &one = example_.frame.result_sizes[i], &other = traced.frame.result_sizes[i];
    tensors::DimSet changing = 0;
    for (size_t dim = 0; dim < one.size(); ++dim) {
      if (one[dim] != other[dim]) changing |= tensors::DimSet{1} << dim;
    }
    marks.push_back(tensors::weak_marks(changing));
  }
  return marks;
}

std::vector<FreeNumber> SizedPrograms::Family::find_free(const SizedProgram& program,
                                                         const Sample& now) const {
  struct Seen {
    const std::vector<double>& reals;
    std::vector<int64_t> sizes;
  };
  const FittedGraph& graph = program.graph();
  std::vector<Seen> all{{now.reals, graph.sizes_for(now.numbers.values).value()}};
  for (const Sample& sample : samples_) {
    auto sizes = graph.sizes_for(sample.numbers.values);
    if (sizes && sample.reals.size() == now.reals.size())
      all.push_back({sample.reals, std::move(*sizes)});
  }
  const auto is_for_all = [&](auto&& holds) { return std::all_of(all.begin(), all.end(), holds); };
  std::vector<FreeNumber> free;
  for (const size_t symbol : graph.unexplained()) {
    size_t real = 0;
    while (real < now.reals.size() && !is_for_all([&](const Seen& seen) {
             return bits_of(seen.reals[real]) == seen.sizes[symbol];
           }))
      ++real;
    if (real == now.reals.size()) return {};
    free.push_back({real, symbol});
  }
  return free;
}

std::optional<SizedPrograms::Match> SizedPrograms::Family::find(
    const TracedFunction& traced, const GraphNumbers& numbers,
    const std::vector<double>& reals) const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const std::shared_ptr<SizedProgram>& program : programs_) {
    auto sizes = program->graph().sizes_for(numbers.values);
    if (!sizes) continue;
    std::vector<FreeNumber> free;
    if (!reals.empty() && traced.constants.empty())
      free = find_free(*program, {numbers, reals});
    const bool is_certain = are_all_given(program->graph().unexplained(), *sizes, reals) &&
                            traced.constants == example_.constants;
    return Match{program, std::move(*sizes), std::move(free), is_certain};
  }
  return std::nullopt;
}

std::shared_ptr<const FittedGraph> SizedPrograms::Family::fit(const Graph& graph,
                                                              const GraphNumbers& numbers) const {
  std::vector<GraphNumbers> compared;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (programs_.size() >= most_programs) return nullptr;
    for (const Sample& sample : samples_) {
      if (can_be_compared(sample.numbers, numbers)) compared.push_back(sample.numbers);
    }
  }
  if (compared.empty()) return nullptr;
  compared.push_back(numbers);
  return std::make_shared<const FittedGraph>(graph, compared);
}

void SizedPrograms::Family::remember(const GraphNumbers& numbers,
                                     const std::vector<double>& reals) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool is_known = std::any_of(samples_.begin(), samples_.end(), [&](const Sample& sample) {
    return sample.numbers.values == numbers.values;
  });
  if (is_known) return;
  // The first ones stay: they were fitted.
  if (samples_.size() >= most_samples) samples_.pop_back();
  samples_.push_back({numbers, reals});
}

void SizedPrograms::Family::add(std::shared_ptr<SizedProgram> program) {
  std::lock_guard<std::mutex> lock(mutex_);
  // The newest was made of the most sizes.
  programs_.insert(programs_.begin(), std::move(program));
}

bool SizedPrograms::Family::remove(const std::shared_ptr<SizedProgram>& program) {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::erase(programs_, program) != 0;
}

std::shared_ptr<SizedPrograms::Family> SizedPrograms::family_of(
    const TracedFunction& traced, const std::vector<int64_t>& static_sizes) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const std::shared_ptr<Family>& family : families_) {
    if (family->takes(traced, static_sizes)) return family;
  }
  if (families_.size() >= most_families) families_.erase(families_.begin());
  return families_.emplace_back(std::make_shared<Family>(traced, static_sizes));
}

void SizedPrograms::remove(const std::shared_ptr<SizedProgram>& program) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(families_, [&](const auto& family) { return family->remove(program); });
}

void SizedPrograms::clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  families_.clear();
}

}  // namespace ahead::compiling
