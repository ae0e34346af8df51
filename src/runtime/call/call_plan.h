#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ahead/executable.h"
#include "ahead/program.h"
#include "base/autocast.h"
#include "base/culprit.h"
#include "runtime/call/debug_asserts.h"
#include "runtime/node/variants.h"
#include "tensors/size_marks.h"

namespace ahead::runtime {

using SizeMarksPtr = c10::intrusive_ptr<tensors::SizeMarks>;

/// Where a tensor is found once the forward graph has run.
struct Source {
  enum class Kind : uint8_t { Input, Output, View, Argument };
  Kind kind;
  int32_t index;       ///< graph input, graph output, step among Epilogue::views, or argument
  int32_t result = 0;  ///< for View: which result of the step
  bool operator==(const Source&) const = default;
};

/// A view operator to be called again, on tensors that the caller sees.
struct ViewStep {
  const c10::OperatorHandle* op;
  Source source;
  std::vector<c10::IValue> rest;  ///< the arguments after the tensor
  bool no_grad;
  /// For as_strided: the offset counts from that of the tensor.
  bool is_relative = false;
  /// In eager it is a multi-output view, to which autograd lets nobody write.
  bool is_one_of_several = false;
};

/// The backward as a function that can be differentiated itself.
class DifferentiableBackward {
 public:
  virtual ~DifferentiableBackward() = default;

  /// One graph input that it needs, or one saved value.
  struct Need {
    enum class Kind : uint8_t { Input, Saved };
    Kind kind;
    int32_t index;
  };
  /// The tensors that it needs besides tangents.
  virtual const std::vector<Need>& needs() const = 0;

  /// What one backward is asked for.
  struct Request {
    /// The tensor for one of needs(), which may be asked for once. Throws if it was written to.
    std::function<at::Tensor(size_t)> needed;
    const std::vector<at::Tensor>& tangents;
    const BackwardVariants::Mask& wanted;
    /// Where the gradient of each of the plan's grad_inputs goes.
    const torch::autograd::edge_list& edges;
  };
  /// The gradients of the plan's grad_inputs, with history; undefined where they are not wanted.
  virtual std::vector<at::Tensor> run(const Request& request) = 0;

  /// The programs that were compiled for it apart from those of the function itself.
  virtual std::vector<Program> programs() = 0;
};

/// Under which autocast a backward runs.
struct BackwardAutocastPlan {
  /// The autocast of every backward; none: the one in effect where backward() is called.
  std::optional<AutocastState> fixed;
  /// An operator for which autocast would cast, were it on.
  std::optional<Culprit> castable;
  /// The autocast under which the compiled backward is right, as it is without autocast.
  std::optional<AutocastState> right_for;
};

/// What happens before the forward graph runs: its inputs are gathered.
struct Prologue {
  /// One input of the forward graph.
  struct Input {
    enum class Kind : uint8_t { Argument, Captured, GradOfInput, Base };
    Kind kind;
    int32_t index = 0;    ///< argument, base, or the graph input whose `.grad` it is
    at::Tensor captured;  ///< for arguments: the only tensor that may be passed; undefined: any
  };
  /// A synthetic base: arguments that share memory are replaced by one tensor that has all of it.
  struct Base {
    std::vector<int32_t> arguments;
    /// For each argument, the first argument that has the same version counter.
    std::vector<int32_t> counters;
    /// For each argument, whether autograd knows it as a view of the base, or as the base.
    std::vector<bool> tracked;
  };

  std::vector<Base> bases;
  std::vector<Input> inputs;
};

/// What happens after the forward graph has run: inputs are written to, results are made.
struct Epilogue {
  /// An argument with a synthetic base gets other sizes, strides or another offset.
  struct Reshape {
    int32_t argument;
    TensorMeta geometry;
  };
  /// The version of an argument with a synthetic base goes up by the writes that writing to the
  /// base does not count.
  struct VersionBump {
    int32_t argument;
    uint64_t bumps;
  };
  /// A graph input gets new contents, a new geometry, both, or only a new version.
  struct Write {
    int32_t input;
    int32_t output;  ///< -1: the contents stay, or the graph writes them itself
    bool seen_by_autograd;
    uint64_t version_bumps;  ///< as many as eager's operators would make
    /// The new sizes and strides; the offset is relative to the one before.
    std::optional<TensorMeta> geometry;
    bool in_graph = false;  ///< the graph writes the contents itself

    bool changes_contents() const { return output >= 0 || in_graph; }
  };
  /// A graph input gets the memory of another tensor, or its contents in more memory of its own.
  struct Reset {
    int32_t input;
    Source source;
    uint64_t version_bumps;
    bool grows = false;
    bool operator==(const Reset&) const = default;
  };
  /// The function calls requires_grad_() on a graph input.
  struct RequiresGradChange {
    int32_t input;
    bool requires_grad;
    bool operator==(const RequiresGradChange&) const = default;
  };
  /// A graph output becomes the `.grad` of a graph input.
  struct NewGrad {
    int32_t input;
    int32_t output;
    bool operator==(const NewGrad&) const = default;
  };
  /// One result of the function.
  struct Result {
    enum class Kind : uint8_t { Undefined, Tensor, Repeated };
    Kind kind;
    Source source{Source::Kind::Output, 0, 0};  ///< Tensor
    int32_t repeats = -1;                       ///< Repeated: an earlier result
    bool requires_grad = false;
    bool is_leaf = false;
    /// For a view: the graph output whose history it has; -1: the history of a view.
    int32_t history = -1;
    /// For a tensor that was set_() to memory of an input: its version, of its own; -1: no such.
    int64_t own_version = -1;
    bool operator==(const Result&) const = default;
  };
  /// A tensor that the function made and then wrote to.
  struct NewVersion {
    int32_t output;
    uint32_t version;
    bool operator==(const NewVersion&) const = default;
  };

  /// Arguments with a synthetic base that get a new grad_fn once the base was written to.
  std::vector<int32_t> rebased_arguments;
  std::vector<Reshape> reshapes;
  std::vector<VersionBump> version_bumps;
  /// Graph outputs that the function made in inference mode, though it is not called in it.
  std::vector<int32_t> inference_outputs;
  std::vector<NewVersion> new_versions;
  std::vector<RequiresGradChange> requires_grad_changes;
  std::vector<Write> writes;
  std::vector<Reset> resets;
  std::vector<NewGrad> new_grads;
  /// The first `num_reset_views` are those that resets need.
  std::vector<ViewStep> views;
  size_t num_reset_views = 0;
  std::vector<Result> results;
  /// Grad mode as the function leaves it, where it changes it.
  std::optional<bool> grad_mode_after;
};

/// What the autograd node of a call saves, where it leads, and what it runs.
struct BackwardPlan {
  /// One tensor that the backward needs, in the order in which its graph takes them.
  struct Saved {
    /// Writable: the tensor that the graph input is, whatever is in it when the backward runs.
    enum class Kind : uint8_t { Input, Output, Intermediate, Writable };
    Kind kind;
    int32_t index;  ///< graph input, or graph output
    /// For intermediates: a graph output that shares their memory and that the caller could write
    /// to; -1: none.
    int32_t shares_with = -1;
    int32_t place = 0;  ///< among those of its kind, inputs and outputs being one kind
  };
  /// A tensor from outside to which the backward writes.
  struct Write {
    int32_t saved;  ///< its number among `saved`
    uint64_t version_bumps;
    /// It must not have been written to since the call.
    bool is_checked;
    bool requires_grad;
  };
  /// A gradient that comes in to which the backward writes.
  struct TangentWrite {
    int32_t tangent;  ///< its number among `differentiable`
    uint64_t version_bumps;
  };
  /// Inputs that only some differentiable outputs lead to, the same ones for each input. In eager a
  /// backward from the other outputs does not reach these inputs.
  struct PartlyReached {
    std::vector<bool> outputs;    ///< for each of `differentiable`, whether it leads to them
    std::vector<int32_t> places;  ///< among `grad_inputs`
  };

  /// Null: nothing has a gradient.
  std::shared_ptr<BackwardVariants> program;
  /// Null: the user asked for none.
  std::shared_ptr<DifferentiableBackward> derivatives;
  BackwardAutocastPlan autocast;
  /// Graph outputs with a gradient, in the order of the backward's tangents.
  std::vector<int32_t> differentiable;
  /// Graph inputs with a gradient, in the order of the backward's results.
  std::vector<int32_t> grad_inputs;
  /// For each of `grad_inputs`, whether a gradient flows to it, or a backward that does more leads
  /// to it: eager has no edge to the others.
  std::vector<bool> is_reached;
  std::vector<PartlyReached> partly_reached;
  /// For each autograd node that writes or has an effect, the gradients that it leads to.
  std::vector<std::vector<bool>> led_to_by_acts;
  /// For each differentiable output, the differentiable outputs whose saved tensors its backward
  /// releases, itself among them. Empty: any backward releases all.
  std::vector<std::vector<bool>> released_with;
  /// For each differentiable output, the differentiable outputs that were computed from it, so that
  /// their gradients pass through it in eager. Empty: there are none.
  std::vector<std::vector<bool>> passed_by;
  std::vector<Saved> saved;
  std::vector<Write> writes;
  std::vector<TangentWrite> tangent_writes;
  /// The saved intermediates are moved into the backward where it runs for the last time.
  bool donates_saved = true;
  /// Saved tensors reach the backward in the layout that it was compiled for, whatever the
  /// forward's backend made.
  bool fixes_saved_layout = true;

  bool writes_anything() const { return !writes.empty() || !tangent_writes.empty(); }
};

/// What happens on a call, decided when the function was compiled. Frozen once it is made.
struct CallPlan {
  std::string name;
  /// Plans of one program for other sizes share it where they hold the same tensors, whose owners
  /// are counted.
  std::shared_ptr<const Prologue> prologue = std::make_shared<const Prologue>();
  aot::Executable forward;
  int32_t num_outputs = 0;  ///< of the forward graph
  /// Where the forward graph's outputs begin to be saved values.
  int32_t first_saved_output = 0;
  BackwardPlan backward;
  Epilogue epilogue;
  /// For each result, what is to be known of its sizes; empty: nothing.
  std::vector<SizeMarksPtr> result_marks = {};
  /// For each input of the forward graph, whether the call needs it afterwards; see kept_inputs.h.
  std::vector<bool> kept_inputs = {};

  /// The function takes gradients itself: which inputs were computed from which must stay the same.
  bool differentiates = false;
  /// Null: nothing is checked.
  std::shared_ptr<const DebugAsserts> asserts;
  /// The tensors that the graphs get are printed.
  bool verbose = false;
};

}  // namespace ahead::runtime
