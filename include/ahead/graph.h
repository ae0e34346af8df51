#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "ahead/detail/pool.h"
#include "ahead/dim.h"
#include "ahead/export.h"

namespace c10 {
class OperatorHandle;
struct FunctionSchema;
}  // namespace c10

namespace ahead {

class Graph;
class Node;

/// What is known of a tensor without its data.
struct AHEAD_API TensorMeta {
  using Dims = ahead::Dims;

  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  Dims sizes;
  Dims strides;
  Dim offset = 0;
  bool requires_grad = false;

  /// Reads the metadata of a defined, strided tensor whose sizes are fixed.
  static TensorMeta of(const at::Tensor& tensor);
  /// Describes a tensor stored row by row, without gaps.
  static TensorMeta contiguous(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat,
                               at::Device device = at::kCPU);

  Dim numel() const;
  /// Whether it is known to lie row by row, whatever the sizes are.
  bool is_contiguous() const;
  /// Whether sizes, strides and offset are the same in all runs.
  bool is_fixed() const { return sizes.is_fixed() && strides.is_fixed() && offset.is_fixed(); }
  bool operator==(const TensorMeta& other) const;
  bool operator!=(const TensorMeta& other) const { return !(*this == other); }
  /// The text form, for example `f32[2, 3]{1, 2}+4 @cuda:0 requires_grad`.
  std::string str() const;
};

/// An operator of the dispatcher, or one of Ahead's own, interned: two nodes call the same operator
/// exactly if they hold the same address.
class AHEAD_API Operator {
 public:
  /// Finds an operator by its printed name (`aten.add.Tensor`, `ahead.call`); null if there is
  /// none.
  static const Operator* find(std::string_view name);
  static const Operator& of(const c10::OperatorHandle& handle);
  /// `ahead.call(graph, args…)`: runs a sub-graph in place of the node.
  static const Operator& call_graph();

  const std::string& name() const { return name_; }
  /// A small dense number, so that tables about operators can be plain vectors.
  uint32_t id() const { return id_; }
  /// False for Ahead's own operators, which have no handle and no schema.
  bool in_dispatcher() const { return handle_ != nullptr; }
  const c10::OperatorHandle& handle() const { return *handle_; }
  const c10::FunctionSchema& schema() const;

 private:
  friend class OperatorTable;
  Operator() = default;

  std::string name_;
  uint32_t id_ = 0;
  std::shared_ptr<const c10::OperatorHandle> handle_;
};

/// What a graph input or output means. Positions carry no meaning; slots do.
struct AHEAD_API Slot {
  enum class Kind : uint8_t {
    // inputs
    Primal,         ///< the index-th argument of the traced function
    Captured,       ///< a tensor the function reached without its being an argument
    Tangent,        ///< the gradient of the graph output at position index
    SyntheticBase,  ///< the common base of several arguments
    Saved,          ///< a value the forward graph saved for the backward graph (input and output)
    /// What a default generator was seeded with, and where it stands (inputs and outputs). The
    /// index is twice the device (0: the CPU, i + 1: CUDA device i), one more in the backward.
    Seed,
    Offset,
    Token,  ///< orders effects (input and output)
    Sizes,  ///< one tensor of integers: the sizes s0, s1, … of which constants and metadata are
            ///< made
    // outputs
    Output,            ///< the index-th result of the traced function
    MutatedInput,      ///< the new contents of the graph input at position index
    GradOf,            ///< the gradient of the graph input at position index
    AccumulatedGrad,   ///< the new `.grad` of the graph input at position index
    IntermediateBase,  ///< a tensor that several outputs are views of
  };
  Kind kind = Kind::Primal;
  int32_t index = 0;

  bool operator==(const Slot& other) const { return kind == other.kind && index == other.index; }
  /// The text form, for example `Primal 0`.
  std::string str() const;
};

/// A tensor in a graph: a graph input or one result of a node. Assigned once.
class AHEAD_API Value {
 public:
  TensorMeta meta;

  /// The node that makes this value; null for a graph input.
  Node* producer() const { return producer_; }
  /// Position among the producer's results, or among the graph's inputs.
  uint32_t index() const { return index_; }
  /// A number unique in its graph and stable under rewriting; smaller than Graph::value_capacity().
  uint32_t id() const { return id_; }
  /// The nodes that take this value, one entry for each time they do.
  const c10::SmallVector<Node*, 2>& users() const { return users_; }
  /// How often the value is a graph output.
  uint32_t output_uses() const { return output_uses_; }
  bool is_used() const { return !users_.empty() || output_uses_ != 0; }

 private:
  friend class Graph;
  Node* producer_ = nullptr;
  uint32_t index_ = 0;
  uint32_t id_ = 0;
  uint32_t output_uses_ = 0;
  c10::SmallVector<Node*, 2> users_;
};

/// One argument of a node: a value, a constant, a list of arguments, or a sub-graph.
/// At a position where the operator expects a tensor, a number constant stands for a wrapped
/// number.
class AHEAD_API Argument {
 public:
  using List = std::vector<Argument>;

  Argument(Value* value) : data_(value) {}
  Argument(c10::IValue constant) : data_(std::move(constant)) {}
  /// A number constant. Without this, the literal 0 would be a null value.
  template <class Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
  Argument(Number number) : data_(to_constant(number)) {}
  Argument(List list) : data_(std::move(list)) {}
  Argument(std::shared_ptr<const Graph> graph) : data_(std::move(graph)) {}

  bool is_value() const { return std::holds_alternative<Value*>(data_); }
  bool is_constant() const { return std::holds_alternative<c10::IValue>(data_); }
  bool is_list() const { return std::holds_alternative<List>(data_); }
  bool is_graph() const { return std::holds_alternative<std::shared_ptr<const Graph>>(data_); }

  Value* value() const { return std::get<Value*>(data_); }
  const c10::IValue& constant() const { return std::get<c10::IValue>(data_); }
  const List& list() const { return std::get<List>(data_); }
  const std::shared_ptr<const Graph>& graph() const {
    return std::get<std::shared_ptr<const Graph>>(data_);
  }

  /// Calls visit(Value*) for every value in the argument, in order.
  template <class Visit>
  void for_each_value(Visit&& visit) const {
    if (is_value()) {
      visit(value());
    } else if (is_list()) {
      for (const Argument& element : list()) element.for_each_value(visit);
    }
  }

 private:
  friend class Graph;

  template <class Number>
  static c10::IValue to_constant(Number number) {
    if constexpr (std::is_same_v<Number, bool>) return number;
    if constexpr (std::is_floating_point_v<Number>) return static_cast<double>(number);
    return static_cast<int64_t>(number);
  }

  std::variant<Value*, c10::IValue, List, std::shared_ptr<const Graph>> data_;
};

enum class Phase : uint8_t { Forward, Backward };

/// Facts about one node that its operator alone does not tell. A set of bits.
enum class Tag : uint16_t {
  NoGrad = 1 << 0,    ///< recorded while grad mode was off
  Autocast = 1 << 1,  ///< recorded while autocast was on for the node's device
  MustBeInForward = 1 << 2,
  MustBeInBackward = 1 << 3,
  MustSave = 1 << 4,
  MustRecompute = 1 << 5,
  Random = 1 << 6,      ///< draws random numbers
  Effect = 1 << 7,      ///< must run exactly once, in order, whether or not its results are used
  PreferSave = 1 << 8,  ///< computed again only to keep to a memory budget
  PreferRecompute = 1 << 9,  ///< counts as cheap to compute again
  /// Adds up gradients that reach a tensor on several ways; noted where places are recorded.
  GradientAccumulation = 1 << 10,
};

/// One operator call.
class AHEAD_API Node {
 public:
  Phase phase = Phase::Forward;
  /// The autograd sequence number of the forward operator this node belongs to, counted from the
  /// start of the trace; -1 if unknown. Operators without gradient have that of the one before.
  int64_t sequence = -1;
  /// The autograd node that issued the call; null if none did.
  const std::string* provenance = nullptr;
  /// The places in the user's code that led to the call, innermost first; for a backward node those
  /// of the forward operator it belongs to. Null unless recorded.
  const std::string* place = nullptr;

  /// Takes phase, sequence number, provenance and place of another node.
  void belong_to(const Node& other) {
    phase = other.phase;
    sequence = other.sequence;
    provenance = other.provenance;
    place = other.place;
  }

  const Operator& op() const { return *op_; }
  const std::vector<Argument>& args() const { return args_; }
  /// All results, flattened; a null entry is an undefined tensor.
  const c10::SmallVector<Value*, 2>& results() const { return results_; }
  Value* result(size_t index = 0) const { return results_[index]; }
  /// For each value the operator returns: the length of the tensor list, or -1 for anything else.
  /// What is no tensor stands in results() as undefined.
  const c10::SmallVector<int32_t, 2>& return_lengths() const { return return_lengths_; }

  bool has(Tag tag) const { return (tags_ & static_cast<uint16_t>(tag)) != 0; }
  void set(Tag tag) { tags_ |= static_cast<uint16_t>(tag); }
  uint16_t tags() const { return tags_; }
  void set_tags(uint16_t tags) { tags_ = tags; }

  Node* next() const { return next_; }
  Node* prev() const { return prev_; }

  /// Calls visit(Value*) for every value the node takes, in order.
  template <class Visit>
  void for_each_operand(Visit&& visit) const {
    for (const Argument& arg : args_) arg.for_each_value(visit);
  }

 private:
  friend class Graph;
  const Operator* op_ = nullptr;
  uint16_t tags_ = 0;
  std::vector<Argument> args_;
  c10::SmallVector<Value*, 2> results_;
  c10::SmallVector<int32_t, 2> return_lengths_;
  Node* prev_ = nullptr;
  Node* next_ = nullptr;
};

/// A functional tensor program: straight-line, in SSA form, without aliasing writes.
///
/// Nodes and values have stable addresses for the life of the graph. Copying is deep.
class AHEAD_API Graph {
 public:
  struct Input {
    Value* value;
    Slot slot;
    /// For Slot::Kind::Captured: the tensor itself, as long as it is known.
    at::Tensor captured;
  };
  struct Output {
    Value* value;  ///< null: an undefined tensor
    Slot slot;
    bool requires_grad = false;
  };
  class Iterator {
   public:
    explicit Iterator(Node* node) : node_(node) {}
    Node& operator*() const { return *node_; }
    Node* operator->() const { return node_; }
    Iterator& operator++() { return node_ = node_->next(), *this; }
    bool operator==(const Iterator& other) const { return node_ == other.node_; }
    bool operator!=(const Iterator& other) const { return node_ != other.node_; }

   private:
    Node* node_;
  };
  struct Nodes {
    Node* first;
    Iterator begin() const { return Iterator(first); }
    Iterator end() const { return Iterator(nullptr); }
  };

  Graph() = default;
  Graph(const Graph& other);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph other) noexcept;
  ~Graph() = default;

  // Reading.
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  /// The nodes in order of execution: `for (Node& node : graph.nodes())`.
  Nodes nodes() const& { return {first_}; }
  Nodes nodes() const&& = delete;  // they would not outlive the graph
  Node* first() const { return first_; }
  Node* last() const { return last_; }
  size_t num_nodes() const { return num_nodes_; }
  /// Every Value::id() is smaller than this.
  size_t value_capacity() const { return values_.size(); }
  /// Finds the position of the input (output) with this slot; -1 if there is none.
  int64_t find_input(Slot slot) const;
  int64_t find_output(Slot slot) const;
  /// What s0, s1, … were when the graph was made: by them costs are estimated. Empty if nobody said
  /// so, or if no size changes.
  const std::vector<int64_t>& example_sizes() const { return example_sizes_; }

  // Building.
  void set_example_sizes(std::vector<int64_t> sizes) { example_sizes_ = std::move(sizes); }
  Value* add_input(Slot slot, TensorMeta meta, at::Tensor captured = {});
  void add_output(Value* value, Slot slot, bool requires_grad = false);
  /// Adds a call at the end, or before `before`. Its results are announced with add_return.
  Node* add_node(const Operator& op, std::vector<Argument> args, Node* before = nullptr);
  /// Announces the next tensor the node returns; without metadata: an undefined tensor.
  Value* add_return(Node* node, std::optional<TensorMeta> meta);
  /// Announces the next tensor list the node returns.
  void add_return_list(Node* node, std::vector<std::optional<TensorMeta>> metas);

  // Rewriting. Each costs as much as the uses it touches.
  /// Every user of `from` takes `to` instead, graph outputs included.
  void replace_uses(Value* from, Value* to);
  void set_argument(Node* node, size_t index, Argument argument);
  void set_output(size_t index, Value* value);
  /// Removes a node none of whose results is used. A loop over nodes() may erase the node it is at.
  void erase(Node* node);
  /// Removes an input that is not used, or an output; later positions move up by one, and so do the
  /// slots that name them. A position that a slot names cannot be removed before that slot.
  void erase_input(size_t index);
  void erase_output(size_t index);
  /// Lets go of the captured tensors; whoever runs the graph has to pass them.
  void forget_captured();

  // Text, identity, checking.
  /// The program as text; Graph::parse reads it back exactly.
  std::string str() const;
  /// Reads what str() prints. Throws UserError with line and column.
  static Graph parse(std::string_view text);
  /// Throws InternalError, showing the nodes around the culprit, unless the graph is well formed.
  void verify() const;
  /// Equal for programs that differ in value names, sequence numbers, provenance, places and
  /// example sizes only, and the same in every process. A constant that has no text, such as a
  /// user's generator, counts by type.
  uint64_t hash() const;
  /// The graph in Graphviz's language.
  std::string dot() const;

 private:
  Value* new_value(TensorMeta meta, Node* producer, size_t index);
  void add_uses(const Argument& argument, Node* user);
  void drop_uses(const Argument& argument, Node* user);
  static size_t replace_in(Argument& argument, Value* from, Value* to);
  bool is_linked(const Node* node) const;
  void unlink(Node* node);
  void swap(Graph& other) noexcept;

  detail::Pool<Node> storage_;
  detail::Pool<Value> values_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  Node* first_ = nullptr;
  Node* last_ = nullptr;
  size_t num_nodes_ = 0;
  std::vector<int64_t> example_sizes_;
};

/// A graph that holds a function and its gradient: it takes primals, captured tensors and tangents,
/// and returns mutated inputs, outputs and gradients. Which is which, the slots tell.
class AHEAD_API JointGraph : public Graph {
 public:
  JointGraph() = default;
  explicit JointGraph(Graph graph) : Graph(std::move(graph)) {}
};

}  // namespace ahead
