#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ahead/graph.h"
#include "ahead/kernel_counts.h"

namespace ahead::aot {

/// A function over flat lists of tensors.
using FlatFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// One run of a compiled graph that hands its outputs over as they are made, so that the caller can
/// use and free them while the rest is still to be computed. Used by one thread at a time.
class GraphRun {
 public:
  virtual ~GraphRun() = default;

  /// Goes on until the outputs with these numbers are made, and returns them in this order. All
  /// nodes that the same autograd node called (Node::sequence) have run by then, and none that is
  /// still to run reads or writes the memory of these outputs. Each may be asked for once.
  virtual std::vector<at::Tensor> until(c10::ArrayRef<int32_t> outputs) = 0;
  /// Whether a node that is still to run reads the memory of this input.
  virtual bool will_read(size_t input) const = 0;
  /// Runs what is left. A run that is not finished has computed some of its outputs only.
  virtual void finish() = 0;
};

/// A compiled graph. Takes one tensor for each graph input, which it may free or reuse, and returns
/// one for each graph output. Several threads may call it at once. Backends make it of a function
/// that runs the graph to its end, and if they can, of one that begins a GraphRun.
class Executable {
 public:
  using Function = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>&& args)>;
  using Begin = std::function<std::unique_ptr<GraphRun>(std::vector<at::Tensor>&& args)>;

  Executable() = default;
  Executable(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): as std::function has it
  template <class F, class = std::enable_if_t<std::is_constructible_v<Function, F> &&
                                              !std::is_same_v<std::decay_t<F>, Executable>>>
  Executable(F run)  // NOLINT(google-explicit-constructor)
      : run_(std::move(run)) {}
  Executable(Function run, Begin begin) : run_(std::move(run)), begin_(std::move(begin)) {}

  explicit operator bool() const { return static_cast<bool>(run_); }

  std::vector<at::Tensor> operator()(std::vector<at::Tensor>&& args) const {
    return run_(std::move(args));
  }

  /// Whether begin() may be called.
  bool is_resumable() const { return static_cast<bool>(begin_); }
  std::unique_ptr<GraphRun> begin(std::vector<at::Tensor>&& args) const {
    return begin_(std::move(args));
  }

 private:
  Function run_;
  Begin begin_;
};

/// What a backend is given.
struct CompileRequest {
  const Graph& graph;
  /// What the inputs look like, which the graph's own inputs say as well.
  std::vector<TensorMeta> inputs;
  /// For each input, whether nobody needs it once the graph has run for the last time: a call that
  /// owns the tensor alone may write its results there. Empty: none of them.
  std::vector<bool> donated = {};
  /// For each input, whether it is the same tensor in all calls (parameters, buffers, tensors that
  /// the function captured). Empty: none of them.
  std::vector<bool> static_inputs = {};
  /// Where most of the work is to be done.
  at::Device target = at::kCPU;
  /// For messages and files: the function and which of its graphs this is.
  std::string name = {};
  /// Takes what the backend wants people to see of its work: the name of a stage, and its program
  /// as text. May be empty.
  std::function<void(const std::string& stage, std::string text)> report = {};
  /// What the backend counts of its kernels is added to this, also of those that it makes later for
  /// other sizes. May be null.
  std::shared_ptr<KernelCounts> kernel_counts = {};
  /// Whether the backend may compile kernels while the graph runs without them; see CompileMode.
  bool in_background = false;
};

/// Turns a graph into something that runs. It is made of a function of a CompileRequest, or of a
/// graph and what its inputs look like.
class GraphCompiler {
 public:
  GraphCompiler() = default;
  GraphCompiler(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): as std::function has it
  template <class F, class = std::enable_if_t<std::is_invocable_r_v<Executable, const F&,
                                                                    const CompileRequest&>>>
  GraphCompiler(F compile)  // NOLINT(google-explicit-constructor)
      : compile_(std::move(compile)) {}
  template <class F,
            class = std::enable_if_t<std::is_invocable_r_v<Executable, F&, const Graph&,
                                                           const std::vector<TensorMeta>&>>,
            class = void>
  GraphCompiler(F compile)  // NOLINT(google-explicit-constructor)
      : compile_([compile = std::move(compile)](const CompileRequest& request) mutable {
          return compile(request.graph, request.inputs);
        }) {}

  explicit operator bool() const { return static_cast<bool>(compile_); }

  Executable operator()(const CompileRequest& request) const { return compile_(request); }
  Executable operator()(const Graph& graph, const std::vector<TensorMeta>& inputs) const {
    return compile_({graph, inputs});
  }

 private:
  std::function<Executable(const CompileRequest&)> compile_;
};

}  // namespace ahead::aot
