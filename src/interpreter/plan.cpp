#include "interpreter/plan.h"

#include <ATen/ScalarOps.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ahead/errors.h"
#include "ir/signature.h"
#include "ir/sizes/size_reads.h"
#include "ir/sizes/sized_constants.h"
#include "ops/facts/aliasing.h"
#include "ops/facts/facts.h"

namespace ahead {
namespace {

using Plan = Interpreter::Plan;

bool is_tensor_type(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  return type.kind() == c10::TypeKind::OptionalType && is_tensor_type(*type.containedType(0));
}

/// The element type of a list type, looking through optionals; null if it is no list.
const c10::Type* list_element(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType) return list_element(*type.containedType(0));
  return type.kind() == c10::TypeKind::ListType ? type.containedType(0).get() : nullptr;
}

using OperatorMap = std::unordered_map<const Operator*, const Operator*>;

/// From one overload of each operator of arithmetic to another.
const OperatorMap* arithmetic_overloads(const char* from, const char* to) {
  auto* map = new OperatorMap;
  for (const char* name : {"add", "sub", "mul", "div"}) {
    const std::string base = std::string("aten.") + name;
    map->emplace(Operator::find(base + from), Operator::find(base + to));
  }
  return map;
}

/// The overload for tensors of an operator that takes a number. LibTorch's kernel for the number
/// would make the same wrapped number anew at each call.
const Operator& with_wrapped_number(const Operator& op) {
  static const OperatorMap* overloads = arithmetic_overloads(".Scalar", ".Tensor");
  auto found = overloads->find(&op);
  return found == overloads->end() ? op : *found->second;
}

/// For the gradient of a pointwise operator, the overload that writes it to a given tensor, which
/// may be the gradient it is made of; null if there is none.
const Operator* gradient_writer(const Operator& op) {
  const Operator* writer = Operator::find(op.name() + ".grad_input");
  if (writer == nullptr) return nullptr;
  const auto &taken = op.schema().arguments(), &written = writer->schema().arguments();
  const bool takes_same = written.size() == taken.size() + 1 &&
                          std::equal(taken.begin(), taken.end(), written.begin(),
                                     [](const c10::Argument& one, const c10::Argument& other) {
                                       return *one.type() == *other.type();
                                     });
  return takes_same ? writer : nullptr;
}

/// Which values lie in memory that is made in this graph or donated to it, by Value::id(). Other
/// inputs may not be written to, nor may the results of operators that may return what they were
/// given, as those outside of LibTorch may.
std::vector<bool> own_memory(const Graph& graph, const std::vector<bool>& donated) {
  std::vector<bool> is_own(graph.value_capacity());
  for (size_t i = 0; i < donated.size(); ++i) is_own[graph.inputs()[i].value->id()] = donated[i];
  for (const Node& node : graph.nodes()) {
    if (!node.op().in_dispatcher()) {
      const Graph& sub_graph = *node.args()[0].graph();
      const std::vector<bool> is_own_inside = own_memory(sub_graph, {});
      for (size_t i = 0; i < node.results().size(); ++i) {
        const Value* inside = sub_graph.outputs()[i].value;
        if (node.result(i) != nullptr && inside != nullptr)
          is_own[node.result(i)->id()] = is_own_inside[inside->id()];
      }
      continue;
    }
    const std::string& name = node.op().name();
    if (name.compare(0, 5, "aten.") != 0 && name.compare(0, 7, "mkldnn.") != 0) continue;
    bool is_made_here = true;
    if (ops::facts(node.op()).view != ops::ViewKind::None)
      node.for_each_operand([&](Value* value) { is_made_here &= is_own[value->id()]; });
    for (const Value* result : node.results()) {
      if (result != nullptr) is_own[result->id()] = is_made_here;
    }
  }
  return is_own;
}

/// Translates one graph; values become registers numbered by first definition.
class Planner {
 public:
  Planner(const Graph& graph, Plan::Views views, const aot::GraphCompiler& sub_graphs,
          const std::vector<bool>& donated, Plan& plan)
      : graph_(graph),
        reads_sizes_(reads_sizes(graph)),
        views_at_once_(views == Plan::Views::AtOnce && !reads_sizes_),
        sub_graphs_(sub_graphs),
        plan_(plan),
        registers_(graph.value_capacity(), Plan::kNothing),
        uses_left_(graph.value_capacity(), 0),
        view_of_(graph.value_capacity(), nullptr),
        is_own_memory_(own_memory(graph, donated)) {}

  void run() {
    count_uses();
    for (const Graph::Input& input : graph_.inputs()) add_parameter(input);
    for (const Node& node : graph_.nodes()) {
      if (view_of_[first_result(node)] != nullptr) {
        add_view(node);
      } else {
        add_call(node);
      }
      call_ends_.emplace_back(&node, plan_.calls.size());
    }
    for (const Graph::Output& output : graph_.outputs()) add_return(output);
    find_ready();
  }

 private:
  /// Says when each output may be handed over, and which have a register of their own. Only the
  /// gradients of backward graphs are handed over before the end.
  void find_ready() {
    std::vector<int32_t> returned(static_cast<size_t>(plan_.num_registers));
    for (Plan::Return& ret : plan_.returns) {
      ret.ready = plan_.calls.size();
      if (ret.reg != Plan::kNothing) ++returned[static_cast<size_t>(ret.reg)];
    }
    for (Plan::Return& ret : plan_.returns)
      ret.is_only = ret.reg != Plan::kNothing && returned[static_cast<size_t>(ret.reg)] == 1;
    if (std::find(is_gradient_.begin(), is_gradient_.end(), true) == is_gradient_.end()) return;
    const ops::Aliasing aliasing(graph_);
    std::vector<size_t> touched(graph_.value_capacity());  // by group: after so many calls no more
    std::unordered_map<int64_t, size_t> node_ends;         // of autograd nodes
    for (const auto& [node, end] : call_ends_) {
      for_each_called(*node, [&, end = end](const Node& called) {
        if (is_of_autograd_node(called)) node_ends[called.sequence] = end;
      });
      const auto touch = [&, end = end](const Value* value) {
        if (value != nullptr) touched[aliasing.group(value)] = end;
      };
      node->for_each_operand(touch);
      for (const Value* result : node->results()) touch(result);
    }
    for (size_t i = 0; i < plan_.parameters.size(); ++i)
      plan_.parameters[i].read_until = touched[aliasing.group(graph_.inputs()[i].value)];
    for (size_t i = 0; i < plan_.returns.size(); ++i) {
      const Value* value = graph_.outputs()[i].value;
      if (value == nullptr) continue;
      plan_.returns[i].ready = touched[aliasing.group(value)];
      const Node* producer = maker_of(*value);
      if (producer != nullptr && is_of_autograd_node(*producer)) {
        plan_.returns[i].ready = std::max(plan_.returns[i].ready, node_ends.at(producer->sequence));
      }
    }
  }

  /// The sub-graph that a node calls; null if it calls none.
  static const Graph* called_by(const Node& node) {
    const bool calls = !node.args().empty() && node.args()[0].is_graph();
    return calls ? node.args()[0].graph().get() : nullptr;
  }

  /// Calls use(node) for a node, or for those of the sub-graph that it calls.
  template <class Use>
  static void for_each_called(const Node& node, const Use& use) {
    const Graph* const called = called_by(node);
    if (called == nullptr) return use(node);
    for (const Node& inner : called->nodes()) for_each_called(inner, use);
  }

  /// The node that makes a value, in a sub-graph perhaps; null for inputs.
  static const Node* maker_of(const Value& value) {
    const Node* const producer = value.producer();
    const Graph* const called = producer == nullptr ? nullptr : called_by(*producer);
    if (called == nullptr) return producer;
    const Value* inner = called->outputs()[value.index()].value;
    return inner == nullptr ? nullptr : maker_of(*inner);
  }

  static bool is_of_autograd_node(const Node& node) {
    return node.phase == Phase::Backward && node.provenance != nullptr && node.sequence >= 0;
  }

  /// The id of the node's first result; of no value for a node without.
  size_t first_result(const Node& node) const {
    const bool has_result = !node.results().empty() && node.results()[0] != nullptr;
    return has_result ? node.results()[0]->id() : no_value_;
  }

  /// Counts the uses of each value. A layout view that is needed itself is a use of the root of its
  /// chain of views; one that only leads to further views is no use.
  void count_uses() {
    no_value_ = view_of_.size();
    view_of_.push_back(nullptr);
    for (const Node& node : graph_.nodes()) {
      if (views_at_once_ && ops::is_layout_view(node)) {
        const Value* source = node.args()[0].value();
        const Value* root = view_of_[source->id()];
        view_of_[node.result()->id()] = root == nullptr ? source : root;
      } else {
        node.for_each_operand([&](Value* value) { ++uses_left_[value->id()]; });
      }
    }
    is_gradient_.resize(view_of_.size());
    for (const Graph::Output& output : graph_.outputs()) {
      if (output.value == nullptr) continue;
      ++uses_left_[output.value->id()];
      is_gradient_[output.value->id()] = output.slot.kind == Slot::Kind::GradOf;
    }
    for (const Node& node : graph_.nodes()) {
      const Value* root = view_of_[first_result(node)];
      if (root != nullptr && uses_left_[node.result()->id()] != 0) ++uses_left_[root->id()];
    }
  }

  void add_view(const Node& node) {
    const Value* result = node.result();
    if (uses_left_[result->id()] == 0) return;
    const Value* root = view_of_[result->id()];
    Plan::View view;
    view.source_sizes = root->meta.sizes;
    view.source_strides = root->meta.strides;
    view.sizes = result->meta.sizes;
    view.strides = result->meta.strides;
    view.offset = result->meta.offset - root->meta.offset;
    view.is_fixed = root->meta.is_fixed() && result->meta.is_fixed();
    view.is_identity = view.offset == 0 && view.sizes == view.source_sizes &&
                       view.strides == view.source_strides && may_stand_for(*root, *result);
    view.source = registers_[root->id()];
    view.last_use = --uses_left_[root->id()] == 0;
    view.result = define(result);
    add_links(node, root, view);
    Plan::Call call{};
    call.view = static_cast<int32_t>(plan_.views.size());
    plan_.views.push_back(std::move(view));
    plan_.calls.push_back(std::move(call));
  }

  /// Whether the root may stand for a view with the same layout. Inputs and outputs are each a
  /// tensor of their own, but a gradient is new in any case.
  bool may_stand_for(const Value& root, const Value& result) const {
    return root.producer() != nullptr && root.output_uses() == 0 &&
           (result.output_uses() == 0 || (result.output_uses() == 1 && is_gradient_[result.id()]));
  }

  void add_links(const Node& last, const Value* root, Plan::View& view) {
    std::vector<const Node*> chain{&last};
    while (chain.back()->args()[0].value() != root)
      chain.push_back(chain.back()->args()[0].value()->producer());
    view.first_link = static_cast<int32_t>(plan_.links.size());
    view.num_links = static_cast<int32_t>(chain.size());
    for (auto node = chain.rbegin(); node != chain.rend(); ++node) {
      Plan::Call link = start_call(**node);
      add_operands(**node, link, /*first=*/1);
      plan_.links.push_back(std::move(link));
    }
  }

  int32_t define(const Value* value) {
    if (value == nullptr || uses_left_[value->id()] == 0) return Plan::kNothing;
    return registers_[value->id()] = plan_.num_registers++;
  }

  void add_parameter(const Graph::Input& input) {
    const bool captured = input.slot.kind == Slot::Kind::Captured;
    if (!captured) ++plan_.num_free_parameters;
    const bool is_sizes = input.slot.kind == Slot::Kind::Sizes;
    plan_.has_sizes |= is_sizes;
    plan_.parameters.push_back(
        {input.captured, captured, is_sizes, define(input.value), input.value->meta, 0});
  }

  /// The Reuse of a pointwise call whose first argument is not needed any more; kNothing if there
  /// is none. Not for complex numbers, whose division rounds differently in place.
  int32_t add_reuse(const Node& node, const Plan::Call& call) {
    const ops::OpFacts& facts = ops::facts(node.op());
    if (facts.op_class != ops::OpClass::Pointwise || node.results().size() != 1 ||
        node.result() == nullptr || !node.args()[0].is_value())
      return Plan::kNothing;
    const Value& argument = *node.args()[0].value();
    const TensorMeta &before = argument.meta, &after = node.result()->meta;
    const bool dies =
        plan_.operands[static_cast<size_t>(call.first_operand)].kind == Plan::Operand::Kind::Move;
    if (!dies || !is_own_memory_[argument.id()] || before.dtype != after.dtype ||
        at::isComplexType(after.dtype) || before.device != after.device ||
        before.sizes != after.sizes || before.strides != after.strides)
      return Plan::kNothing;
    const Operator& op = with_wrapped_number(node.op());
    const bool names_result = ops::facts(op).in_place == nullptr;
    const Operator* writer = names_result ? gradient_writer(op) : ops::facts(op).in_place;
    if (writer == nullptr) return Plan::kNothing;
    plan_.reuses.push_back(
        {&writer->handle(), names_result, after.sizes, after.strides, after.is_fixed()});
    return static_cast<int32_t>(plan_.reuses.size()) - 1;
  }

  /// The Promise of a call of a custom operator, or of any where sizes are read; kNothing for
  /// others.
  int32_t add_promise(const Node& node) {
    const bool is_custom = ops::is_custom(node.op()) && ops::facts(node.op()).effectful;
    if (!is_custom && !reads_sizes_) return Plan::kNothing;
    Plan::Promise promise;
    for (const Value* result : node.results()) {
      const bool is_expected = result != nullptr && (result->meta.is_fixed() || reads_sizes_);
      promise.results.push_back(is_expected ? std::optional(result->meta) : std::nullopt);
    }
    if (promise.results.empty()) return Plan::kNothing;
    plan_.promises.push_back(std::move(promise));
    return static_cast<int32_t>(plan_.promises.size()) - 1;
  }

  /// What runs the sub-graph of a call, which may write over arguments that nobody needs after it.
  aot::Executable compile(const Node& node, const Plan::Call& call) const {
    const Graph& sub_graph = *node.args()[0].graph();
    std::vector<bool> donated;
    for (size_t i = 0; i < sub_graph.inputs().size(); ++i) {
      const Plan::Operand& operand = plan_.operands[static_cast<size_t>(call.first_operand) + i];
      donated.push_back(operand.kind == Plan::Operand::Kind::Move &&
                        is_own_memory_[node.args()[i + 1].value()->id()]);
    }
    if (sub_graphs_) {
      aot::CompileRequest request{sub_graph, {}};
      for (const Graph::Input& input : sub_graph.inputs())
        request.inputs.push_back(input.value->meta);
      request.donated = std::move(donated);
      return sub_graphs_(request);
    }
    auto plan = std::make_shared<const Plan>(sub_graph, Plan::Views::AtOnce, sub_graphs_, donated);
    return [plan](std::vector<at::Tensor>&& args) { return plan->run(std::move(args)); };
  }

  Plan::Call start_call(const Node& node) const {
    Plan::Call call{};
    call.view = Plan::kNothing;
    call.reuse = Plan::kNothing;
    call.promise = Plan::kNothing;
    call.size_read = Plan::kNothing;
    call.no_grad = node.has(Tag::NoGrad);
    if (node.op().in_dispatcher()) {
      const Operator& op = with_wrapped_number(node.op());
      call.op = &op.handle();
      call.written = written_arguments(op);
    }
    return call;
  }

  /// Float arithmetic converts a number to float at each call, and so may the plan. Kernels for
  /// narrower types compute with the number as it is.
  static bool takes_numbers_as_float(const Node& node, const Operator& op) {
    static const auto* arithmetic = new std::unordered_set<const Operator*>{
        Operator::find("aten.add.Tensor"), Operator::find("aten.sub.Tensor"),
        Operator::find("aten.mul.Tensor"), Operator::find("aten.div.Tensor")};
    return arithmetic->count(&op) != 0 && node.args()[0].is_value() &&
           node.args()[0].value()->meta.dtype == at::kFloat &&
           node.result()->meta.dtype == at::kFloat;
  }

  void add_operands(const Node& node, Plan::Call& call, size_t first) {
    numbers_are_float_ =
        call.op != nullptr && takes_numbers_as_float(node, with_wrapped_number(node.op()));
    call.first_operand = static_cast<int32_t>(plan_.operands.size());
    for (size_t i = first; i < node.args().size(); ++i) {
      const c10::Type* type =
          call.op == nullptr ? nullptr : call.op->schema().arguments()[i].type().get();
      add_operand(node.args()[i], type);
    }
    call.num_operands = static_cast<int32_t>(plan_.operands.size()) - call.first_operand;
    plan_.max_stack = std::max(plan_.max_stack, call.num_operands + 1);
  }

  /// The size itself is no operand: it becomes known by the call.
  void add_size_read(const Node& node) {
    Plan::Call call = start_call(node);
    call.size_read = static_cast<int32_t>(plan_.size_reads.size());
    plan_.size_reads.push_back({size_read_by(node), plan_.sized.size()});
    call.first_operand = static_cast<int32_t>(plan_.operands.size());
    call.num_operands = 1;
    add_value(node.args()[0].value());
    plan_.calls.push_back(std::move(call));
  }

  void add_call(const Node& node) {
    if (reads_size(node)) return add_size_read(node);
    Plan::Call call = start_call(node);
    add_operands(node, call, /*first=*/call.op == nullptr ? 1 : 0);
    if (call.op != nullptr) {
      call.reuse = add_reuse(node, call);
      call.promise = add_promise(node);
    } else {
      call.sub_graph = compile(node, call);
    }
    add_results(node, call);
    plan_.calls.push_back(std::move(call));
  }

  void add_results(const Node& node, Plan::Call& call) {
    call.first_result = static_cast<int32_t>(plan_.results.size());
    call.num_returns = static_cast<int32_t>(node.return_lengths().size());
    call.first_return = static_cast<int32_t>(plan_.return_lengths.size());
    for (int32_t length : node.return_lengths()) plan_.return_lengths.push_back(length);
    for (const Value* result : node.results()) plan_.results.push_back(define(result));
  }

  void add_operand(const Argument& argument, const c10::Type* type) {
    if (argument.is_value()) return add_value(argument.value());
    if (argument.is_list()) return add_list(argument.list(), *type);
    if (argument.is_graph()) {
      throw InternalError("interpreter",
                          "a sub-graph is an argument of an operator that cannot take one.");
    }
    add_constant(argument.constant(), type);
  }

  void add_value(const Value* value) {
    const bool last = --uses_left_[value->id()] == 0;
    plan_.operands.push_back(
        {last ? Plan::Operand::Kind::Move : Plan::Operand::Kind::Copy, registers_[value->id()]});
  }

  void add_list(const Argument::List& list, const c10::Type& type) {
    const c10::Type* element = list_element(type);
    const bool optional = element->kind() == c10::TypeKind::OptionalType;
    plan_.operands.push_back(
        {optional ? Plan::Operand::Kind::OptionalTensorList : Plan::Operand::Kind::TensorList,
         static_cast<int32_t>(list.size())});
    for (const Argument& entry : list) add_operand(entry, element);
  }

  void add_constant(c10::IValue constant, const c10::Type* type) {
    const bool is_tensor = type != nullptr && is_tensor_type(*type);
    if (has_sizes(constant)) {
      plan_.operands.push_back(
          {Plan::Operand::Kind::Sized, static_cast<int32_t>(plan_.sized.size())});
      plan_.sized.push_back({std::move(constant), is_tensor, is_tensor && numbers_are_float_});
      return;
    }
    if (is_tensor) {
      if (constant.isScalar()) {
        constant = wrap_number(constant.toScalar(), numbers_are_float_);
      } else if (constant.isNone() && type->kind() == c10::TypeKind::TensorType) {
        constant = at::Tensor();
      }
    }
    plan_.operands.push_back(
        {Plan::Operand::Kind::Constant, static_cast<int32_t>(plan_.constants.size())});
    plan_.constants.push_back(std::move(constant));
  }

  void add_return(const Graph::Output& output) {
    if (output.value == nullptr) return plan_.returns.push_back({Plan::kNothing, false});
    const bool last = --uses_left_[output.value->id()] == 0;
    plan_.returns.push_back({registers_[output.value->id()], last});
  }

  const Graph& graph_;
  const bool reads_sizes_;
  /// Where sizes are read, operators look whether there is such a view.
  const bool views_at_once_;
  const aot::GraphCompiler& sub_graphs_;
  Plan& plan_;
  std::vector<int32_t> registers_;
  std::vector<int32_t> uses_left_;
  /// For each value made by layout views: the root of its chain of views.
  std::vector<const Value*> view_of_;
  std::vector<bool> is_own_memory_;  ///< by value: made in this graph, of memory made in it
  size_t no_value_ = 0;
  bool numbers_are_float_ = false;  ///< those of the call being added
  std::vector<bool> is_gradient_;
  std::vector<std::pair<const Node*, size_t>> call_ends_;  ///< how many calls there are after it
};

}  // namespace

const Operator* Interpreter::Plan::with_number(const Operator& op) {
  static const OperatorMap* overloads = arithmetic_overloads(".Tensor", ".Scalar");
  auto found = overloads->find(&op);
  return found == overloads->end() ? nullptr : found->second;
}

// Past the dispatcher: a plan that is made inside a trace must not become part of it.
at::Tensor wrap_number(const at::Scalar& number, bool as_float) {
  at::Scalar held = number;
  if (as_float) {
    held = number.isIntegral(/*includeBool=*/true) ? static_cast<float>(number.toLong())
                                                   : static_cast<float>(number.toDouble());
  }
  const at::ScalarType dtype = as_float ? at::kFloat : held.type();
  at::Tensor tensor = at::detail::scalar_tensor_static(held, dtype, at::kCPU);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

Interpreter::Plan::Plan(const Graph& graph, Views views, const aot::GraphCompiler& sub_graphs,
                        const std::vector<bool>& donated) {
  Planner(graph, views, sub_graphs, donated, *this).run();
}

}  // namespace ahead
