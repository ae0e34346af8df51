#pragma once

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "base/libtorch.h"
#include "engine/call_memory.h"
#include "engine/walk/hooked_tensors.h"
#include "engine/walk/key.h"
#include "engine/walk/step.h"

namespace ahead::engine {

/// Where the gradient that a node sends along an edge goes, if nobody asks for it.
constexpr int32_t kNowhere = -1;

/// Why a step is Eager that the walk found to be so, after the name of its node.
constexpr const char* kWhyEager =
    " runs as in eager: it does not say what it holds, or holds a tensor that graphs cannot take";

/// Why a step is Called that the walk found to be so.
constexpr const char* kWhyCalled =
    " is called between graphs: it is user code that does not say what it holds, or whose saved "
    "tensors have hooks";

/// Whether graphs can take this tensor: the tracer can stand in for it.
bool is_plain(const c10::TensorImpl& tensor);

/// One backward as it was found: the nodes in the order in which eager would run them, the tensors
/// they hold, and what tells it from backwards for which other graphs are needed.
class Backward {
 public:
  /// Walks the graph. What it finds is valid as long as the graph task is, and as long as none of
  /// its nodes has been released.
  Backward(const NodePtr& root, const torch::autograd::GraphTask& task, const std::string* backend);
  ~Backward();
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  const torch::autograd::GraphTask& task() const { return task_; }
  const std::vector<Step>& steps() const { return found_->steps; }
  /// The place to which each edge leads, kNowhere for those not to be followed.
  const std::vector<int32_t>& targets() const { return found_->targets; }
  size_t num_places() const { return num_places_; }
  /// What the engine wants to know of a node; null: it has to be run and that is all.
  const torch::autograd::GraphTask::ExecInfo* wanted(const torch::autograd::Node* node) const;

  /// Whether the node has to run, and not only to tell what flows into it.
  bool is_needed(const torch::autograd::Node* node) const;

  /// The saved tensors that hooks unpack, step by step in the order in which nodes unpack them.
  const std::vector<HookedTensor>& hooked() const { return found_->hooked.all(); }

  /// The tensors that nodes hold, each once. Whoever runs the graphs may take them away.
  std::vector<at::Tensor>& inputs() { return call_->tensor_args.inputs; }
  const std::vector<at::Tensor>& inputs() const { return call_->tensor_args.inputs; }
  /// How many of them steps before this one hold: the first ones.
  size_t num_inputs_before(size_t step) const;
  torch::dynamo::autograd::AutogradCompilerCall& call() { return *call_; }
  /// Where the number that a custom function holds stands among the sizes, if it does: an integer,
  /// or a floating-point number by its bits.
  std::optional<size_t> size_of_number(size_t number) const {
    const uint32_t position = found_->number_sizes[number];
    return position == kNoSizes ? std::nullopt : std::optional<size_t>(position);
  }
  /// Whether nobody wrote to this input since it was found.
  bool is_unwritten(size_t input) const {
    return version_of(inputs()[input]) == found_->versions[input];
  }

  /// Lets go of what these steps hold and no later one does. To be called when they have run.
  void let_go(size_t first_step, size_t end_step);

  /// Types, constants and edges of all nodes.
  c10::ArrayRef<uint8_t> key() const { return found_->key.bytes(); }
  /// All sizes and strides that graphs depend on.
  const std::vector<int64_t>& sizes() const { return found_->sizes; }
  /// Where the sizes of the gradient at this place begin among them; of what lies behind a node
  /// that does not tell, they are none.
  size_t sizes_of_place(size_t place) const { return found_->place_sizes[place]; }
  /// Where the sizes of this input begin among them, which are followed by its strides; nothing for
  /// tensors that graphs cannot take.
  std::optional<size_t> sizes_of_input(size_t input) const {
    const uint32_t first = found_->input_sizes[input];
    return first == kNoSizes ? std::nullopt : std::optional<size_t>(first);
  }
  /// Why this backward must run in the eager engine; empty: it need not.
  const std::string& refusal() const { return refusal_; }

  /// Nodes that are known by their type.
  enum class Special : uint8_t { None, Accumulator, CopySlices, UserCode };

 private:
  struct Known {
    torch::autograd::Node* node;
    uint32_t number;    ///< its own position
    int32_t remaining;  ///< edges that lead here and were not walked yet
    int32_t first_place;
    bool is_wanted;
    bool is_needed;
  };
  struct Ready {
    uint64_t sequence;
    uint32_t known;
    bool operator<(const Ready& other) const { return sequence < other.sequence; }
  };

  /// What LibTorch writes down of the nodes' constants, one after the other.
  struct Constants {
    explicit Constants(torch::dynamo::autograd::AutogradCompilerCall& call)
        : node(0, nullptr), args(call, node) {}
    /// `has_hooked`: it saved tensors that hooks unpack, of which it tells nothing.
    c10::ArrayRef<uint8_t> ask(torch::autograd::Node& asked, bool has_hooked);

    torch::dynamo::autograd::NodeCall node;  ///< the one being asked
    torch::dynamo::autograd::CompiledNodeArgs args;
    size_t size = 0;
  };

  /// What the walk writes down. It is kept from one backward of a thread to the next: walking along
  /// one that was like this costs less than finding the order of the nodes, and asking for large
  /// pieces of memory anew costs more than filling them.
  struct Found {
    std::vector<Step> steps;
    std::vector<int32_t> targets;
    Key key;
    std::vector<int64_t> sizes;
    std::vector<uint32_t> place_sizes;
    std::vector<uint32_t> input_sizes;
    std::vector<uint32_t> number_sizes;
    std::vector<uint32_t> versions;
    HookedTensors hooked;
    /// Somewhere there are such tensors, so each node is asked for them. This goes on for later
    /// backwards.
    bool looks_for_hooked = false;
    std::vector<uint32_t> held;  ///< inputs of steps that have run which others still hold
    /// Nodes by address: a table with open addressing of positions in `known`, plus one.
    std::vector<uint32_t> table;
    std::vector<Known> known;
    std::vector<Ready> ready;
    CallMemory memory;
    /// What was found out about types, by address.
    struct Type {
      const std::type_info* type;
      Special special;
    };
    Type types[64] = {};

    /// Where an edge leads: the first place of a node, and which of its inputs.
    struct Target {
      uint32_t first_place;
      uint32_t input;
    };
    /// For each edge; those that lead nowhere have the input kNoInput.
    std::vector<Target> edges;
    /// For each first place its node.
    std::vector<torch::autograd::Node*> nodes;
    std::vector<uint64_t> sequences;  ///< of the steps
    /// The steps by their sequence numbers.
    struct Rank {
      uint32_t step;
      bool is_next_equal;
    };
    std::vector<Rank> ranks;
    size_t num_dependencies = 0;
    /// Whether a later backward can be walked along this one: all of it was asked for.
    bool can_be_followed = false;

    void clear();
    void clear_values();
    void rank();
    bool is_ranked() const;
  };
  using FoundPtr = std::unique_ptr<Found>;
  static std::vector<FoundPtr>& spares();
  static FoundPtr take_spare(size_t num_dependencies);
  static constexpr uint32_t kNoInput = UINT32_MAX;
  static constexpr uint32_t kNoSizes = UINT32_MAX;

  template <class T>
  void put(const T& part_of_key) {
    found_->key.put(part_of_key);
  }
  void begin();
  void end();
  void walk(const NodePtr& root);
  bool walk_along(const NodePtr& root);
  bool follow_edges_along(const Step& step);
  void know_nodes(const NodePtr& root);
  Known& find(torch::autograd::Node* node);
  Known& meet(torch::autograd::Node* node);
  void insert(torch::autograd::Node* node, int32_t dependencies);
  void describe_surroundings();
  void describe_places(const torch::autograd::Node& node);
  void describe_place(const torch::autograd::InputMetadata& metadata);
  void add_step(const Known& known);
  Special special(const torch::autograd::Node& node);
  Step::Kind kind_of(const Hooks& hooks, bool is_needed, Special special) const;
  void describe_hooks(const Step& step);
  bool holds_user_code(const torch::autograd::Node& node);
  void describe_step(Step& step, bool is_needed);
  void describe_inner(const torch::autograd::Node& copy_slices);
  bool collect_saved(Step& step);
  bool collect_constants(const Step& step);
  bool collect_numbers(size_t first);
  bool describe_inputs(size_t first);
  void describe_captures(const torch::autograd::Node* node);
  void follow_edges(Step& step);
  bool let_go(uint32_t input);
  static uint32_t version_of(const at::Tensor& tensor) {
    return tensor.is_inference() ? 0 : tensor._version();
  }
  void refuse(std::string reason);

  const torch::autograd::GraphTask& task_;
  const std::string* backend_;
  std::optional<torch::dynamo::autograd::AutogradCompilerCall> call_;
  std::optional<Constants> constants_;  ///< while it walks
  FoundPtr found_;
  /// What LibTorch makes of one root alone. It is followed even if nothing that is asked for lies
  /// behind it, as hooks on it are called then.
  const torch::autograd::Node* only_root_ = nullptr;
  size_t num_places_ = 0;
  bool must_begin_anew_ = false;  ///< there are tensors that the walk did not look for
  std::string refusal_;
};

}  // namespace ahead::engine
