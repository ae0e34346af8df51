#include "compile/agreed_sizes.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "ahead/interpret.h"
#include "ahead/trace.h"
#include "compile/epilogue_numbers.h"
#include "ir/sizes/fitting.h"
#include "ir/sizes/graph_numbers.h"
#include "tensors/size_marks.h"

namespace ahead::detail {
namespace {

using runtime::Prologue;

/// Kinds of calls, and combinations of sizes of each, that are remembered.
constexpr size_t most_kinds = 16;
constexpr size_t most_samples = 16;

/// Sizes of 0 and 1 are special to many operators: which of them there are tells calls apart.
std::vector<int64_t> small_sizes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& tensor : tensors) {
    for (const int64_t size : tensor.sizes()) sizes.push_back(std::min<int64_t>(size, 2));
  }
  return sizes;
}

/// Whether nothing but sizes can make the program do something else.
bool depends_on_sizes_only(const Entry& entry) {
  return !entry.has_state && !entry.reads_values && !entry.is_trusted && entry.pinned.empty() &&
         entry.wrapped == nullptr && entry.split == nullptr && entry.compiled.free.empty() &&
         !entry.compiled.with_offsets && !entry.compiled.sized->has_open_traces() &&
         entry.compiled.sized->graph().unexplained().empty();
}

/// For each symbol of a graph, the input that has it as a size and the dimension of that.
struct Place {
  size_t input, dim;
};
std::vector<std::optional<Place>> places_of_symbols(const Graph& graph, size_t num_symbols,
                                                    const Prologue& prologue) {
  std::vector<std::optional<Place>> places(num_symbols);
  for (size_t i = 0; i < prologue.inputs.size(); ++i) {
    if (prologue.inputs[i].kind != Prologue::Input::Kind::Argument) continue;
    const Dims& sizes = graph.inputs()[i].value->meta.sizes;
    for (size_t symbol = 0; symbol < num_symbols; ++symbol) {
      const auto* const found =
          std::find(sizes.begin(), sizes.end(), Dim::symbol(static_cast<uint32_t>(symbol)));
      if (found != sizes.end() && !places[symbol])
        places[symbol] = Place{i, static_cast<size_t>(found - sizes.begin())};
    }
  }
  return places;
}

/// Finds out which numbers a program has for the sizes of a call, from those it had for others.
class Extrapolation {
 public:
  Extrapolation(AgreedSizes::Agreement agreement, const std::vector<at::Tensor>& arguments)
      : agreement_(std::move(agreement)),
        samples_(agreement_.samples),
        graph_(agreement_.last->compiled.sized->graph().graph()),
        prologue_(*agreement_.last->kind.plan->prologue),
        arguments_(arguments) {}

  /// Those of `sizes` and `numbers` of a sample; none: it does not follow.
  std::optional<AgreedSizes::Sample> run() {
    AgreedSizes::Sample now;
    if (!add_given(now.sizes) || !add_others(now.sizes)) return std::nullopt;
    for (size_t i = 0; i < samples_[0].numbers.size(); ++i) {
      const auto number = find(column(&AgreedSizes::Sample::numbers, i), now.sizes);
      if (!number) return std::nullopt;
      now.numbers.push_back(*number);
    }
    return are_inputs_as_expected(now.sizes) ? std::optional(std::move(now)) : std::nullopt;
  }

 private:
  using Column = Fitting::Column;

  Column column(std::vector<int64_t> AgreedSizes::Sample::*list, size_t position) const {
    Column values;
    for (const AgreedSizes::Sample& sample : samples_) values.push_back((sample.*list)[position]);
    return values;
  }

  static bool is_constant(const Column& values) {
    return std::all_of(values.begin(), values.end(),
                       [&](int64_t each) { return each == values[0]; });
  }

  const at::Tensor& argument(size_t input) const {
    return arguments_[static_cast<size_t>(prologue_.inputs[input].index)];
  }

  /// Symbols that are sizes of arguments. One that was the same in all samples tells nothing.
  bool add_given(std::vector<int64_t>& sizes) {
    places_ = places_of_symbols(graph_, samples_[0].sizes.size(), prologue_);
    for (size_t i = 0; i < places_.size(); ++i) {
      sizes.push_back(
          places_[i] ? argument(places_[i]->input).size(static_cast<int64_t>(places_[i]->dim)) : 0);
      if (!places_[i]) continue;
      const Column values = column(&AgreedSizes::Sample::sizes, i);
      if (is_constant(values) && values[0] != sizes[i]) return false;
      if (!is_constant(values)) fitting_.add_symbol(values, Dim::symbol(static_cast<uint32_t>(i)));
    }
    return true;
  }

  /// Symbols that follow from these, such as the size of a gradient that comes in.
  bool add_others(std::vector<int64_t>& sizes) const {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i]) continue;
      const auto number = find(column(&AgreedSizes::Sample::sizes, i), sizes);
      if (!number || *number < 2) return false;
      sizes[i] = *number;
    }
    return true;
  }

  std::optional<int64_t> find(const Column& values, const std::vector<int64_t>& sizes) const {
    if (is_constant(values)) return values[0];
    const std::optional<Dim> dim = fitting_.find(values);
    return dim ? dim->expression().evaluate(sizes) : std::nullopt;
  }

  bool are_inputs_as_expected(const std::vector<int64_t>& sizes) const {
    for (size_t i = 0; i < prologue_.inputs.size(); ++i) {
      if (prologue_.inputs[i].kind != Prologue::Input::Kind::Argument) continue;
      const TensorMeta& meta = graph_.inputs()[i].value->meta;
      const at::Tensor& given = argument(i);
      for (size_t dim = 0; dim < meta.sizes.size(); ++dim) {
        const auto place = static_cast<int64_t>(dim);
        if (meta.sizes[dim].at(sizes) != given.size(place) ||
            meta.strides[dim].at(sizes) != given.stride(place))
          return false;
      }
    }
    return true;
  }

  const AgreedSizes::Agreement agreement_;
  const std::vector<AgreedSizes::Sample>& samples_;
  const Graph& graph_;
  const Prologue& prologue_;
  const std::vector<at::Tensor>& arguments_;
  std::vector<std::optional<Place>> places_;
  Fitting fitting_;
};

/// The same graph that returns the results of all nodes, too.
Graph with_all_results(Graph graph) {
  int32_t next = 0;
  for (const Graph::Output& output : graph.outputs()) next = std::max(next, output.slot.index + 1);
  for (const Node& node : graph.nodes()) {
    for (Value* result : node.results()) {
      if (result != nullptr) graph.add_output(result, {Slot::Kind::Output, next++});
    }
  }
  return graph;
}

/// Whether LibTorch's operators return tensors of the sizes that a graph says; no kernel runs. What
/// was fitted knows of no clamp and of no sign that other sizes bring about.
bool is_possible(const Graph& fitted, const std::vector<int64_t>& sizes) {
  const Graph graph = with_all_results(at_sizes(fitted, sizes));
  std::vector<at::Tensor> inputs;
  for (const Graph::Input& input : graph.inputs()) {
    const TensorMeta& meta = input.value->meta;
    inputs.push_back(at::empty_strided(meta.sizes, meta.strides,
                                       at::TensorOptions(meta.dtype).device(meta.device)));
  }
  bool is_as_expected = true;
  const auto run = [&](const std::vector<at::Tensor>& given) {
    const std::vector<at::Tensor> results =
        Interpreter(graph).replay(std::vector<at::Tensor>(given));
    for (size_t i = 0; i < results.size(); ++i) {
      const Value* value = graph.outputs()[i].value;
      if (value == nullptr) continue;
      is_as_expected = is_as_expected && results[i].sizes() == value->meta.sizes &&
                       results[i].strides() == value->meta.strides;
    }
    return std::vector<at::Tensor>();
  };
  try {
    trace_flat(run, inputs, {.allow_escapes = true}, /*joint=*/false);
  } catch (const c10::Error&) {
    return false;
  }
  return is_as_expected;
}

}  // namespace

bool AgreedSizes::Kind::takes(const Call& call) const {
  const std::vector<at::Tensor>& leaves = call.now.inputs.leaves;
  return example.fits_but_for_sizes(call.now, call.watch, call.depends_on, leaves) &&
         small_sizes == small_sizes_of(leaves) && static_sizes == tensors::static_sizes(leaves);
}

AgreedSizes::Kind& AgreedSizes::kind_of(const Call& call) {
  for (Kind& kind : kinds_) {
    if (kind.takes(call)) return kind;
  }
  const std::vector<at::Tensor>& leaves = call.now.inputs.leaves;
  if (kinds_.size() >= most_kinds) kinds_.erase(kinds_.begin());
  return kinds_.emplace_back(Kind{
      CallKind(call.now, call.watch.read(), call.depends_on ? call.depends_on.value() : nullptr,
               std::make_shared<const runtime::CallPlan>(), leaves, /*with_offsets=*/false),
      small_sizes_of(leaves), tensors::static_sizes(leaves)});
}

bool AgreedSizes::distrust(Kind& kind) {
  kind.decides_by_sizes = true;
  kind.samples.clear();
  return false;
}

bool AgreedSizes::note_tape(const Call& call, std::optional<uint64_t> skeleton) {
  Kind& kind = kind_of(call);
  if (!skeleton || kind.skeleton.value_or(*skeleton) != *skeleton) return distrust(kind);
  kind.skeleton = skeleton;
  return true;
}

bool AgreedSizes::note_graph(const Call& call, const std::shared_ptr<const void>& family) {
  Kind& kind = kind_of(call);
  const std::shared_ptr<const void> known = kind.family.lock();
  if (family == nullptr || (known != nullptr && known != family)) return distrust(kind);
  kind.family = family;
  return true;
}

bool AgreedSizes::add(const Call& call, const std::shared_ptr<const Entry>& entry) {
  Kind& kind = kind_of(call);
  if (kind.decides_by_sizes) return true;
  const auto numbers = compiling::numbers_of(entry->kind.plan->epilogue);
  if (!depends_on_sizes_only(*entry) || !numbers) return distrust(kind);
  const std::shared_ptr<const Entry> last = kind.last.lock();
  const bool is_other_program = last != nullptr && last->compiled.sized != entry->compiled.sized;
  // What was known said that the program does this, too, but it does not.
  if (is_other_program && kind.samples.size() >= kEnough &&
      Extrapolation({last, kind.samples}, call.now.inputs.leaves).run())
    return distrust(kind);
  if (last == nullptr || is_other_program ||
      last->kind.plan->prologue != entry->kind.plan->prologue)
    kind.samples.clear();
  const std::string& result_spec = entry->seen.load()->tape->result_spec;
  if (!kind.samples.empty() && kind.result_spec != result_spec) return distrust(kind);
  kind.result_spec = result_spec;
  kind.last = entry;
  const bool is_known =
      std::any_of(kind.samples.begin(), kind.samples.end(),
                  [&](const Sample& sample) { return sample.sizes == entry->compiled.sizes; });
  if (!is_known && kind.samples.size() < most_samples)
    kind.samples.push_back({entry->compiled.sizes, *numbers});
  return true;
}

std::shared_ptr<const AgreedSizes::Agreement> AgreedSizes::find(const Call& call) const {
  const auto kind = std::find_if(kinds_.begin(), kinds_.end(),
                                 [&](const Kind& each) { return each.takes(call); });
  if (kind == kinds_.end() || kind->decides_by_sizes || kind->samples.size() < kEnough)
    return nullptr;
  std::shared_ptr<const Entry> last = kind->last.lock();
  if (last == nullptr) return nullptr;
  return std::make_shared<const Agreement>(Agreement{std::move(last), kind->samples});
}

void AgreedSizes::forget(const compiling::SizedProgram& program) {
  std::erase_if(kinds_, [&](const Kind& kind) {
    const std::shared_ptr<const Entry> last = kind.last.lock();
    return last != nullptr && last->compiled.sized.get() == &program;
  });
}

std::shared_ptr<Entry> make_trusted_entry(const AgreedSizes::Agreement& agreement,
                                          const AgreedSizes::Call& call) {
  const Entry& last = *agreement.last;
  const std::vector<at::Tensor>& arguments = call.now.inputs.leaves;
  if (!last.kind.fits_but_for_sizes(call.now, call.watch, call.depends_on, arguments))
    return nullptr;
  const std::optional<AgreedSizes::Sample> numbers = Extrapolation(agreement, arguments).run();
  const compiling::SizedProgram& program = *last.compiled.sized;
  if (!numbers || !is_possible(program.graph().graph(), numbers->sizes)) return nullptr;
  runtime::CallPlan made = program.with_numbers(*last.kind.plan, numbers->sizes);
  made.epilogue = compiling::with_numbers(std::move(made.epilogue), numbers->numbers);
  const auto plan = std::make_shared<const runtime::CallPlan>(std::move(made));
  auto entry = std::make_shared<Entry>(CallKind(call.now, last.kind.modules, last.kind.dependence,
                                                plan, arguments, /*with_offsets=*/false));
  entry->take_over(last, plan, numbers->sizes);
  return entry->fits(call.now, call.watch, call.depends_on) ? entry : nullptr;
}

}  // namespace ahead::detail
